//! Matrix × vector for every type, against f64.

use crate::gemv;
use crate::layout::Shape;
use crate::testing::{Case, Machine, Random, floats, matrix, rms, within};
use cuda_std::DevicePtr;
use cuda_std::launch::{LaunchConfig, PreparedLaunch};
use sparkinfer_gguf::types::TensorType;

type Prepare = fn(LaunchConfig, DevicePtr<u8>, DevicePtr<f32>, DevicePtr<f32>, u32, u32) -> PreparedLaunch;

fn check(machine: &mut dyn Machine, seed: u64, ty: TensorType, prepare: Prepare) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let block = ty.block_len();
    let columns = block * (1 + random.below((1500 / block).max(3)));
    let shape = Shape {
        rows: 1 + random.below(30),
        columns,
    };
    let weights = matrix(ty, seed, shape.rows * columns)?;
    let x = floats(seed ^ 1, columns, 1.0);
    let (weights_at, x_at) = (machine.upload(&weights.bytes)?, machine.upload(&x)?);
    let y = machine.output::<f32>(shape.rows)?;
    let (config, rows, columns) =
        gemv::config(shape, block as u32, 1 + random.below(3) as u32).map_err(|e| e.to_string())?;
    machine.run(&prepare(config, weights_at, x_at, y, rows, columns))?;
    let x: Vec<f64> = x.into_iter().map(f64::from).collect();
    let want = crate::mmvq::reference(&weights.values, &x);
    let allowed = 1e-5 * (rms(&want) + 1e-3);
    within("y", &machine.download(y, shape.rows)?, &want, |_| allowed)
}

macro_rules! cases {
    ($($name:literal, $ty:ident, $kernel:ident;)*) => {
        &[$(Case { name: $name, run: |m, seed| check(m, seed, TensorType::$ty, gemv::$kernel::prepare) }),*]
    };
}

pub(super) const CASES: &[Case] = cases! {
    "gemv_f32", F32, gemv_f32;
    "gemv_f16", F16, gemv_f16;
    "gemv_bf16", BF16, gemv_bf16;
    "gemv_q8_0", Q8_0, gemv_q8_0;
    "gemv_q4_k", Q4_K, gemv_q4_k;
    "gemv_q5_k", Q5_K, gemv_q5_k;
    "gemv_q6_k", Q6_K, gemv_q6_k;
};
