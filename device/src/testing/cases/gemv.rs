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

macro_rules! cases {
    ($($name:literal, $ty:ident;)*) => {
        &[$(Case { name: $name, run: |m, seed| check(m, seed, TensorType::$ty) }),*]
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
