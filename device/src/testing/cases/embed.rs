//! Rows of a table for every type, with ids inside and outside.

use crate::embed::{Table, launch, reference};
use crate::testing::{Case, Machine, Random, matrix, within};
use sparkinfer_gguf::types::TensorType;

fn check(machine: &mut dyn Machine, seed: u64, ty: TensorType) -> Result<f64, String> {
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
    let launch = launch(ty, data, table, ids_at, out, tokens).map_err(|e| e.to_string())?;
    machine.run(&launch)?;
    let want: Vec<f64> = ids
        .iter()
        .flat_map(|id| reference(&weights.values, table, *id))
        .collect();
    let got = machine.download(out, tokens * columns)?;
    within("row", &got, &want, |i| 1e-9 + 1e-6 * want[i].abs())
}

macro_rules! cases {
    ($($name:literal, $ty:ident;)*) => {
        &[$(Case { name: $name, run: |m, seed| check(m, seed, TensorType::$ty) }),*]
    };
}

pub(super) const CASES: &[Case] = cases! {
    "embed_f32", F32;
    "embed_f16", F16;
    "embed_bf16", BF16;
    "embed_q4_0", Q4_0;
    "embed_q4_1", Q4_1;
    "embed_q5_0", Q5_0;
    "embed_q5_1", Q5_1;
    "embed_q8_0", Q8_0;
    "embed_q2_k", Q2_K;
    "embed_q3_k", Q3_K;
    "embed_q4_k", Q4_K;
    "embed_q5_k", Q5_K;
    "embed_q6_k", Q6_K;
    "embed_iq4_nl", IQ4_NL;
    "embed_iq4_xs", IQ4_XS;
    "embed_mxfp4", MXFP4;
    "embed_nvfp4", NVFP4;
};
