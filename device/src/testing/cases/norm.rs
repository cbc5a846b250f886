//! Norm and quantisation: half a step of the quantised form around the f64 result.

use crate::layout::activation::{Narrow, Wide};
use crate::norm::{
    Norm, config, norm_f32, norm_narrow, norm_wide, quantize_config, quantize_narrow, quantize_wide, reference,
};
use crate::testing::{Case, Machine, Random, floats, within};
use cuda_std::DevicePtr;
use cuda_std::launch::{LaunchConfig, PreparedLaunch};

type Floats = DevicePtr<f32>;
type Prepare = fn(LaunchConfig, Floats, Floats, Floats, Norm, Floats, DevicePtr<u8>) -> PreparedLaunch;

/// How one output form is launched, sized, read, and how large its steps are.
struct Form {
    prepare: Prepare,
    bytes: fn(usize) -> usize,
    read: fn(&[u8], usize) -> Vec<f64>,
    /// Columns that share a scale, and steps of the largest value; 0 steps for plain floats.
    group: usize,
    steps: f64,
}

const PLAIN: Form = Form {
    prepare: norm_f32::prepare,
    bytes: |n| 4 * n,
    read: plain,
    group: 1,
    steps: 0.0,
};
const WIDE: Form = Form {
    prepare: norm_wide::prepare,
    bytes: Wide::vector_bytes,
    read: Wide::dequantize,
    group: 256,
    steps: Wide::MAX as f64,
};
const NARROW: Form = Form {
    prepare: norm_narrow::prepare,
    bytes: Narrow::vector_bytes,
    read: Narrow::dequantize,
    group: 32,
    steps: 127.0,
};

fn plain(bytes: &[u8], _: usize) -> Vec<f64> {
    bytes
        .chunks_exact(4)
        .map(|b| f64::from(bytemuck::pod_read_unaligned::<f32>(b)))
        .collect()
}

/// `got` is within half a step of `want`, and f32 rounding.
fn close(form: &Form, got: &[f64], want: &[f64]) -> Result<f64, String> {
    let largest = |group: usize| {
        want[group * form.group..]
            .iter()
            .take(form.group)
            .fold(0f64, |m, v| m.max(v.abs()))
    };
    let allowed = |i: usize| {
        let largest = largest(i / form.group);
        1e-12
            + 2e-6 * largest
            + if form.steps > 0.0 {
                0.505 * largest / form.steps
            } else {
                0.0
            }
    };
    let got: Vec<f32> = got.iter().map(|v| *v as f32).collect();
    within("v", &got, want, allowed)
}

fn norm(machine: &mut dyn Machine, seed: u64, form: &Form) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let columns = 32 * (1 + random.below(90));
    let (x, r, gain) = (
        floats(seed, columns, 2.0),
        floats(seed ^ 1, columns, 0.7),
        floats(seed ^ 2, columns, 1.0),
    );
    let residual = random.below(2) == 0;
    let shape = Norm {
        columns: columns as u32,
        epsilon: 1e-6,
    };
    let r_at = if residual {
        machine.upload(&r)?
    } else {
        DevicePtr::null()
    };
    let sum = if residual {
        machine.output::<f32>(columns)?
    } else {
        DevicePtr::null()
    };
    let (x_at, gain_at, out) = (
        machine.upload(&x)?,
        machine.upload(&gain)?,
        machine.output((form.bytes)(columns))?,
    );
    let config = config(shape).map_err(|e| e.to_string())?;
    machine.run(&(form.prepare)(config, x_at, r_at, gain_at, shape, sum, out))?;
    let (s, v) = reference(&x, residual.then_some(&r), &gain, shape.epsilon);
    let worst = if residual {
        within("s", &machine.download(sum, columns)?, &s, |i| 1e-6 + 1e-6 * s[i].abs())?
    } else {
        0.0
    };
    let got = (form.read)(&machine.download(out, (form.bytes)(columns))?, columns);
    Ok(worst.max(close(form, &got, &v)?))
}

fn quantize(machine: &mut dyn Machine, seed: u64, form: &Form, wide: bool) -> Result<f64, String> {
    let columns = 32 * (1 + Random::new(seed).below(40));
    let mut x = floats(seed, columns, 2.0);
    x[..32].fill(0.0);
    let (x_at, out) = (machine.upload(&x)?, machine.output((form.bytes)(columns))?);
    let config = quantize_config(columns).map_err(|e| e.to_string())?;
    let prepare = if wide {
        quantize_wide::prepare
    } else {
        quantize_narrow::prepare
    };
    machine.run(&prepare(config, x_at, columns as u32, out))?;
    let bytes = machine.download(out, (form.bytes)(columns))?;
    if bytes != if wide { Wide::quantize(&x) } else { Narrow::quantize(&x) } {
        return Err("records differ from the reference's".into());
    }
    let want: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
    close(form, &(form.read)(&bytes, columns), &want)
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "norm_f32",
        run: |m, seed| norm(m, seed, &PLAIN),
    },
    Case {
        name: "norm_wide",
        run: |m, seed| norm(m, seed, &WIDE),
    },
    Case {
        name: "norm_narrow",
        run: |m, seed| norm(m, seed, &NARROW),
    },
    Case {
        name: "quantize_wide",
        run: |m, seed| quantize(m, seed, &WIDE, true),
    },
    Case {
        name: "quantize_narrow",
        run: |m, seed| quantize(m, seed, &NARROW, false),
    },
];
