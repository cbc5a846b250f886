//! Matrix × vector for every type, against f64.

use crate::gemv;
use crate::layout::Shape;
use crate::mmvq::Operands;
use crate::testing::{Case, Machine, Random, floats, matrix, rms, within};
use sparkinfer_gguf::types::TensorType;

fn check(machine: &mut dyn Machine, seed: u64, ty: TensorType) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let block = ty.block_len();
    // Now and then more than one round.
    let most = if seed % 5 == 4 { 5000 } else { 1500 };
    let columns = block * (1 + random.below((most / block).max(3)));
    let shape = Shape {
        // Now and then more steps than have room for their sums.
        rows: 1 + random.below(if seed % 8 == 3 { 400 } else { 30 }),
        columns,
    };
    let weights = matrix(ty, seed, shape.rows * columns)?;
    let x = floats(seed ^ 1, columns, 1.0);
    let (weights_at, x_at) = (machine.upload(&weights.bytes)?, machine.upload(&x)?);
    let y = machine.output::<f32>(shape.rows)?;
    let operands = Operands {
        weights: weights_at,
        x: x_at.cast(),
        y,
    };
    let launch = gemv::launch(ty, shape, operands, 1 + random.below(3) as u32).map_err(|e| e.to_string())?;
    machine.run(&launch)?;
    let x: Vec<f64> = x.into_iter().map(f64::from).collect();
    let want = crate::mmvq::reference(&weights.values, &x);
    let allowed = 1e-5 * (rms(&want) + 1e-3);
    within("y", &machine.download(y, shape.rows)?, &want, |_| allowed)
}

/// Types of which activations' sums take part in the product in every way that there is.
const WAYS: [TensorType; 6] = [
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q3_K,
    TensorType::Q4_K,
    TensorType::Q6_K,
    TensorType::MXFP4,
];

/// The products of a matrix with `x`, its values, and its type by `seed`.
fn product(machine: &mut dyn Machine, seed: u64, rows: usize, x: &[f32]) -> Result<(Vec<f32>, Vec<f32>), String> {
    let ty = WAYS[seed as usize % WAYS.len()];
    let columns = x.len();
    let weights = matrix(ty, seed, rows * columns)?;
    let (weights_at, x_at) = (machine.upload(&weights.bytes)?, machine.upload(x)?);
    let y = machine.output::<f32>(rows)?;
    let operands = Operands {
        weights: weights_at,
        x: x_at.cast(),
        y,
    };
    machine.run(&gemv::launch(ty, Shape { rows, columns }, operands, 2).map_err(|e| e.to_string())?)?;
    Ok((machine.download(y, rows)?, weights.values))
}

/// A few activations 10⁴ times as large as the others: what the small ones lose by it stays far below what sums of floats
/// lose.
fn outliers(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut x = floats(seed ^ 1, 1024, 1.0);
    for large in x.iter_mut().skip(seed as usize % 97).step_by(97) {
        *large *= 1e4;
    }
    let (y, values) = product(machine, seed, 24, &x)?;
    let most = x.iter().fold(0.0, |most: f64, x| most.max(f64::from(x.abs())));
    let x: Vec<f64> = x.into_iter().map(f64::from).collect();
    let want = crate::mmvq::reference(&values, &x);
    let allowed = |row: usize| -> f64 {
        let weights = values[row * x.len()..].iter().zip(&x);
        weights
            .map(|(w, x)| f64::from(w.abs()) * (1e-6 * x.abs() + 2e-9 * most))
            .sum()
    };
    within("y", &y, &want, allowed)
}

/// An activation that is not finite, and results that say so.
fn not_finite(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut x = floats(seed ^ 1, 512, 1.0);
    x[seed as usize * 61 % 512] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][seed as usize % 3];
    let (y, _) = product(machine, seed, 20, &x)?;
    match y.iter().position(|y| y.is_finite()) {
        Some(row) => Err(format!("row {row} is {}", y[row])),
        None => Ok(0.0),
    }
}

macro_rules! cases {
    ($($name:literal, $ty:ident;)*) => {
        &[
            Case { name: "gemv_outliers", run: outliers },
            Case { name: "gemv_not_finite", run: not_finite },
            $(Case { name: $name, run: |m, seed| check(m, seed, TensorType::$ty) }),*
        ]
    };
}

pub(super) const CASES: &[Case] = cases! {
    "gemv_f32", F32;
    "gemv_f16", F16;
    "gemv_bf16", BF16;
    "gemv_q4_0", Q4_0;
    "gemv_q4_1", Q4_1;
    "gemv_q5_0", Q5_0;
    "gemv_q5_1", Q5_1;
    "gemv_q8_0", Q8_0;
    "gemv_q2_k", Q2_K;
    "gemv_q3_k", Q3_K;
    "gemv_q4_k", Q4_K;
    "gemv_q5_k", Q5_K;
    "gemv_q6_k", Q6_K;
    "gemv_iq4_nl", IQ4_NL;
    "gemv_iq4_xs", IQ4_XS;
    "gemv_mxfp4", MXFP4;
    "gemv_nvfp4", NVFP4;
};
