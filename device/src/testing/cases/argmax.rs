//! The largest value: exact, with ties and NaN.

use crate::argmax::{MAX_BLOCKS, launches, reference};
use crate::testing::{Case, Machine, Random, floats};

fn check(machine: &mut dyn Machine, x: &[f32]) -> Result<f64, String> {
    let (candidates, index) = (machine.output::<u64>(MAX_BLOCKS as usize)?, machine.output::<u32>(1)?);
    let x_at = machine.upload(x)?;
    for launch in launches(x_at, x.len(), candidates, index).map_err(|e| e.to_string())? {
        machine.run(&launch)?;
    }
    let (got, want) = (machine.download(index, 1)?[0], reference(x));
    if got == want {
        Ok(0.0)
    } else {
        Err(format!("index {got} of {}, not {want}", x.len()))
    }
}

/// Few different values, so that there are ties; some NaN and both zeros.
fn ties(seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let pick = [f32::NAN, -0.0, 0.0, -1.0, f32::NEG_INFINITY, -2.5];
    let n = 1 + random.below(2000);
    (0..n).map(|_| pick[random.below(pick.len())]).collect()
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "argmax/values",
        run: |m, seed| check(m, &floats(seed, 1 + Random::new(seed).below(70_000), 3.0)),
    },
    Case {
        name: "argmax/ties",
        run: |m, seed| check(m, &ties(seed)),
    },
    Case {
        name: "argmax/nan",
        run: |m, seed| check(m, &vec![f32::NAN; 1 + Random::new(seed).below(600)]),
    },
];
