//! Rotation of random heads at random positions up to 131,072, against f64.

use crate::rope::{Heads, config, reference, rope_neox, rope_norm, table};
use crate::testing::{Case, Machine, Random, floats, radians, within};

/// A geometric series, or one whose pairs are stretched as long contexts ask for.
fn frequencies(random: &mut Random, rotary: u32) -> Vec<f64> {
    let mut radians = radians(rotary as usize, [1e4, 1e6, 5e5][random.below(3)]);
    if random.below(2) == 0 {
        for (pair, theta) in radians.iter_mut().enumerate() {
            *theta /= 1.0 + pair as f64 * 0.1;
        }
    }
    radians
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
    let radians = frequencies(&mut random, rotary);
    let token_stride = head_count * dims + 8;
    let heads = Heads {
        rotary,
        head_stride: dims as u32,
        token_stride: token_stride as u32,
        magnitude: [1.0, 1.138_629_4][random.below(2)],
    };
    let x = floats(seed, tokens * token_stride, 1.0);
    let positions: Vec<u32> = (0..tokens).map(|_| random.below(131_072) as u32).collect();
    let at = machine.upload(&x)?;
    let (positions_at, table) = (machine.upload(&positions)?, machine.upload(&table(&radians))?);
    let config = config(heads, head_count, tokens).map_err(|e| e.to_string())?;
    let prepare = if neox { rope_neox::prepare } else { rope_norm::prepare };
    machine.run(&prepare(config, at, positions_at, table, heads))?;
    let got = machine.download(at, x.len())?;
    let mut want: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
    for (token, position) in positions.iter().enumerate() {
        for head in 0..head_count {
            let from = token * token_stride + head * dims;
            let rotated = reference(&x[from..from + dims], neox, heads, &radians, *position);
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
