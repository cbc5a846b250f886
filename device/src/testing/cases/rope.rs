//! Rotation of random heads at random positions up to 131,072, against f64.

use crate::rope::{Frequencies, Heads, Yarn, config, reference, rope_neox, rope_norm};
use crate::testing::{Case, Machine, Random, floats, within};

/// Random frequencies: all that metadata can ask for.
fn frequencies(random: &mut Random, rotary: u32) -> Frequencies {
    let mut f = Frequencies::new(rotary, [1e4, 1e6, 5e5][random.below(3)]);
    if random.below(2) == 0 {
        f.factors = (0..rotary / 2).map(|i| 1.0 + i as f32 * 0.1).collect();
    }
    if random.below(2) == 0 {
        f.scale = 0.25;
        f.yarn = Some(Yarn {
            original_context: 32768.0,
            extrapolation: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
        });
    }
    f
}

fn check(machine: &mut dyn Machine, seed: u64, neox: bool) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (head_count, tokens, dims) = (
        1 + random.below(4),
        1 + random.below(3),
        [64, 80, 128, 256][random.below(4)],
    );
    let rotary = if random.below(2) == 0 {
        dims as u32
    } else {
        dims as u32 / 4 * 2
    };
    let f = frequencies(&mut random, rotary);
    let token_stride = head_count * dims + 8;
    let heads = Heads {
        rotary,
        head_stride: dims as u32,
        token_stride: token_stride as u32,
        magnitude: f.magnitude(),
    };
    let x = floats(seed, tokens * token_stride, 1.0);
    let positions: Vec<u32> = (0..tokens).map(|_| random.below(131_072) as u32).collect();
    let at = machine.upload(&x)?;
    let (positions_at, table) = (machine.upload(&positions)?, machine.upload(&f.table())?);
    let config = config(heads, head_count, tokens).map_err(|e| e.to_string())?;
    let prepare = if neox { rope_neox::prepare } else { rope_norm::prepare };
    machine.run(&prepare(config, at, positions_at, table, heads))?;
    let got = machine.download(at, x.len())?;
    let mut want: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
    for (token, position) in positions.iter().enumerate() {
        for head in 0..head_count {
            let from = token * token_stride + head * dims;
            let rotated = reference(&x[from..from + dims], neox, heads, &f.theta(), *position);
            want[from..from + dims].copy_from_slice(&rotated);
        }
    }
    within("x", &got, &want, |_| 3e-6)
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "rope_neox",
        run: |m, seed| check(m, seed, true),
    },
    Case {
        name: "rope_norm",
        run: |m, seed| check(m, seed, false),
    },
];
