//! Matrix × vector, both forms of both types, against f64 over the very weights and activations.
//!
//! The quantised activations are the reference's input, so what remains is the rounding of f32 sums: some 2⁻²⁰ of
//! Σ|w·x|, whose size is the root mean square of the results up to a factor.

use crate::layout::activation::{Narrow, Wide};
use crate::layout::{Q4KRow, Q4KTile, Q6KRow, Q6KTile, Shape, WeightLayout, pack};
use crate::mmvq::{Operands, dp4a, reference, tensor};
use crate::shape::ShapeError;
use crate::testing::{Case, Machine, Random, floats, q4_k_rows, q6_k_rows, rms, within};
use cuda_std::launch::PreparedLaunch;
use sparkinfer_gguf::dequant::dequantize_row;
use sparkinfer_gguf::types::TensorType;

type Prepare = fn(Shape, Operands, u32) -> Result<PreparedLaunch, ShapeError>;

/// An activation as a kernel takes it, and the vector that it stands for.
struct Input {
    records: Vec<u8>,
    values: Vec<f64>,
}

fn wide(x: &[f32]) -> Input {
    let records = Wide::quantize(x);
    Input {
        values: Wide::dequantize(&records, x.len()),
        records,
    }
}

fn narrow(x: &[f32]) -> Input {
    let records = Narrow::quantize(x);
    Input {
        values: Narrow::dequantize(&records, x.len()),
        records,
    }
}

fn rows<L: WeightLayout>(seed: u64, blocks: usize) -> (TensorType, Vec<u8>) {
    match L::BLOCK_BYTES {
        144 => (TensorType::Q4_K, q4_k_rows(seed, blocks)),
        _ => (TensorType::Q6_K, q6_k_rows(seed, blocks)),
    }
}

fn product<L: WeightLayout>(
    machine: &mut dyn Machine,
    seed: u64,
    shape: Shape,
    input: fn(&[f32]) -> Input,
    prepare: Prepare,
) -> Result<f64, String> {
    let (ty, file) = rows::<L>(seed, shape.rows * shape.blocks());
    let mut values = vec![0f32; shape.rows * shape.columns];
    dequantize_row(ty, &file, &mut values).map_err(|e| e.to_string())?;
    let mut packed = vec![0; shape.packed_bytes::<L>()];
    pack::<L>(shape, &file, &mut packed).map_err(|e| e.to_string())?;
    let x = input(&floats(seed ^ 1, shape.columns, 1.0));
    let want = reference(&values, &x.values);
    let y = machine.output::<f32>(shape.rows)?;
    let operands = Operands {
        weights: machine.upload(&packed)?,
        x: machine.upload(&x.records)?,
        y,
    };
    let max_blocks = 1 + Random::new(seed).below(4) as u32;
    machine.run(&prepare(shape, operands, max_blocks).map_err(|e| e.to_string())?)?;
    let got = machine.download(y, shape.rows)?;
    let allowed = 2e-5 * rms(&want);
    within("y", &got, &want, |_| allowed)
}

/// Up to 70 rows of `columns`, or of 256 … 2,816 where it is 0.
fn shape(seed: u64, columns: usize) -> Shape {
    let mut random = Random::new(seed ^ 2);
    let columns = if columns == 0 {
        256 * (1 + random.below(11))
    } else {
        columns
    };
    Shape {
        rows: 1 + random.below(70),
        columns,
    }
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "mmvq_q4k_tensor/any",
        run: |m, seed| product::<Q4KTile>(m, seed, shape(seed, 0), wide, tensor::q4k),
    },
    Case {
        name: "mmvq_q4k_tensor/2048",
        run: |m, seed| product::<Q4KTile>(m, seed, shape(seed, 2048), wide, tensor::q4k),
    },
    Case {
        name: "mmvq_q6k_tensor/any",
        run: |m, seed| product::<Q6KTile>(m, seed, shape(seed, 0), wide, tensor::q6k),
    },
    Case {
        name: "mmvq_q6k_tensor/2048",
        run: |m, seed| product::<Q6KTile>(m, seed, shape(seed, 2048), wide, tensor::q6k),
    },
    Case {
        name: "mmvq_q4k_dp4a/any",
        run: |m, seed| product::<Q4KRow>(m, seed, shape(seed, 0), narrow, dp4a::q4k),
    },
    Case {
        name: "mmvq_q4k_dp4a_2048",
        run: |m, seed| product::<Q4KRow>(m, seed, shape(seed, 2048), narrow, dp4a::q4k),
    },
    Case {
        name: "mmvq_q6k_dp4a/any",
        run: |m, seed| product::<Q6KRow>(m, seed, shape(seed, 0), narrow, dp4a::q6k),
    },
    Case {
        name: "mmvq_q6k_dp4a_2048",
        run: |m, seed| product::<Q6KRow>(m, seed, shape(seed, 2048), narrow, dp4a::q6k),
    },
];
