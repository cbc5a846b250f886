//! Rows of a table for every type, with ids inside and outside.

use crate::embed::{self, Table, config, reference};
use crate::testing::{Case, Machine, Random, matrix, within};
use cuda_std::DevicePtr;
use cuda_std::launch::{LaunchConfig, PreparedLaunch};
use sparkinfer_gguf::types::TensorType;

type Prepare = fn(LaunchConfig, DevicePtr<u8>, Table, DevicePtr<u32>, DevicePtr<f32>) -> PreparedLaunch;

fn check(machine: &mut dyn Machine, seed: u64, ty: TensorType, prepare: Prepare) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let block = ty.block_len().max(8);
    let columns = block * (1 + random.below((1500 / block).max(3)));
    let (rows, tokens) = (1 + random.below(20), 1 + random.below(4));
    let weights = matrix(ty, seed, rows * columns)?;
    let table = Table {
        rows: rows as u32,
        columns: columns as u32,
        scale: 1.0 + random.unit(),
    };
    // One in five is outside.
    let ids: Vec<u32> = (0..tokens)
        .map(|_| random.below(rows + rows.div_ceil(4)) as u32)
        .collect();
    let (data, ids_at) = (machine.upload(&weights.bytes)?, machine.upload(&ids)?);
    let out = machine.output::<f32>(tokens * columns)?;
    let config = config(table, tokens).map_err(|e| e.to_string())?;
    machine.run(&prepare(config, data, table, ids_at, out))?;
    let want: Vec<f64> = ids
        .iter()
        .flat_map(|id| reference(&weights.values, table, *id))
        .collect();
    let got = machine.download(out, tokens * columns)?;
    within("row", &got, &want, |i| 1e-9 + 1e-6 * want[i].abs())
}

macro_rules! cases {
    ($($name:literal, $ty:ident, $kernel:ident;)*) => {
        &[$(Case { name: $name, run: |m, seed| check(m, seed, TensorType::$ty, embed::$kernel::prepare) }),*]
    };
}

pub(super) const CASES: &[Case] = cases! {
    "embed_f32", F32, embed_f32;
    "embed_f16", F16, embed_f16;
    "embed_bf16", BF16, embed_bf16;
    "embed_q8_0", Q8_0, embed_q8_0;
    "embed_q4_k", Q4_K, embed_q4_k;
    "embed_q5_k", Q5_K, embed_q5_k;
    "embed_q6_k", Q6_K, embed_q6_k;
};
