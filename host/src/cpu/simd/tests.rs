//! Products of every quantised type against f64, between levels and between batch sizes.

use sparkinfer_gguf::TensorType;
use sparkinfer_gguf::dequant::dequantize_row;

use super::{GROUP, Group, GroupType, KType, Level, SUPER, Super, quantize_groups, quantize_supers};
use crate::sample::philox4x32;

const COLS: usize = 768;
const ROWS: usize = 5;
const TOKENS: usize = 19;

/// Random blocks whose 16-bit floats are small and finite.
fn weights(ty: TensorType) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..ROWS * ty.row_bytes(COLS).unwrap())
        .map(|i| philox4x32([i as u32, 0, 0, 0], [9, 9])[0] as u8)
        .collect();
    for (i, block) in bytes.chunks_exact_mut(ty.block_bytes()).enumerate() {
        let d = half::f16::from_f32(0.01 + 0.001 * (i % 7) as f32).to_le_bytes();
        match ty {
            TensorType::Q6_K => block[208..210].copy_from_slice(&d),
            TensorType::Q3_K => block[108..110].copy_from_slice(&d),
            TensorType::Q2_K => [80, 82]
                .map(|at| block[at..at + 2].copy_from_slice(&d))
                .into_iter()
                .collect(),
            TensorType::MXFP4 => block[0] = 120 + (i % 5) as u8,
            TensorType::Q4_K | TensorType::Q5_K | TensorType::Q4_1 | TensorType::Q5_1 => [0, 2]
                .map(|at| block[at..at + 2].copy_from_slice(&d))
                .into_iter()
                .collect(),
            _ => block[..2].copy_from_slice(&d),
        }
    }
    bytes
}

fn inputs() -> Vec<f32> {
    (0..(TOKENS * COLS) as u64)
        .map(|i| crate::sample::uniform(11, i) - 0.4)
        .collect()
}

/// `out[row][token]` in f64 over dequantised weights and the given activations.
fn exact(ty: TensorType, weights: &[u8], inputs: &[f64]) -> Vec<f64> {
    let mut values = vec![0.0; ROWS * COLS];
    dequantize_row(ty, weights, &mut values).unwrap();
    let dot = |w: &[f32], x: &[f64]| w.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum::<f64>();
    values
        .chunks(COLS)
        .flat_map(|w| inputs.chunks(COLS).map(move |x| dot(w, x)))
        .collect()
}

/// Runs `rows(level, tokens, out)` over all tokens on both levels, then token by token.
fn check(ty: TensorType, exact: &[f64], rows: impl Fn(Level, &[u32], &mut [f32])) {
    let all: Vec<u32> = (0..TOKENS as u32).collect();
    let run = |level, tokens: &[u32]| {
        let mut out = vec![f32::NAN; ROWS * tokens.len()];
        rows(level, tokens, &mut out);
        out
    };
    let out = run(Level::best(), &all);
    assert_eq!(out, run(Level::portable(), &all), "{ty}: levels differ");
    for token in all {
        let column: Vec<f32> = out.iter().skip(token as usize).step_by(TOKENS).copied().collect();
        assert_eq!(run(Level::best(), &[token]), column, "{ty}: batches differ");
    }
    let scale = exact.iter().fold(0.0f64, |max, x| max.max(x.abs()));
    for (out, exact) in out.iter().zip(exact) {
        assert!((f64::from(*out) - exact).abs() < 3e-6 * scale, "{ty}: {out} {exact}");
    }
}

#[test]
fn k_quants() {
    let mut supers = Vec::new();
    quantize_supers(Level::best(), &inputs(), &mut supers);
    let values: Vec<f64> = supers.iter().flat_map(super_values).collect();
    for ty in [
        TensorType::Q2_K,
        TensorType::Q3_K,
        TensorType::Q4_K,
        TensorType::Q5_K,
        TensorType::Q6_K,
    ] {
        let (weights, kernel) = (weights(ty), KType::of(ty).unwrap());
        check(ty, &exact(ty, &weights, &values), |level, tokens, out| {
            kernel.rows(level, &weights, &supers, COLS / SUPER, tokens, out);
        });
    }
}

#[test]
fn groups_of_32() {
    let mut groups = Vec::new();
    quantize_groups(Level::best(), &inputs(), &mut groups);
    let values: Vec<f64> = groups.iter().flat_map(group_values).collect();
    let types: Vec<TensorType> = TensorType::all().filter(|&ty| GroupType::of(ty).is_some()).collect();
    assert_eq!(types.len(), 8);
    for ty in types {
        let (weights, kernel) = (weights(ty), GroupType::of(ty).unwrap());
        check(ty, &exact(ty, &weights, &values), |level, tokens, out| {
            kernel.rows(level, &weights, &groups, COLS / GROUP, tokens, out);
        });
    }
}

fn super_values(block: &Super) -> Vec<f64> {
    block
        .q
        .as_flattened()
        .iter()
        .map(|&q| f64::from(block.d) * f64::from(q))
        .collect()
}

fn group_values(group: &Group) -> Vec<f64> {
    group.q.iter().map(|&q| f64::from(group.d) * f64::from(q)).collect()
}
