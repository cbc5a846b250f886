//! Matrix × vector, both forms, every type, against f64 over the very weights and activations.
//!
//! The quantised activations are the reference's input, so what remains is the rounding of f32 sums: some 2⁻²⁰ of
//! Σ|w·x|, whose size is the root mean square of the results up to a factor.

use crate::layout::activation::{Narrow, Wide};
use crate::layout::{
    Iq4NlTile, Iq4XsTile, Mxfp4Tile, Nvfp4Tile, Q2KTile, Q3KTile, Q4_0Tile, Q4_1Tile, Q4KRow, Q4KTile, Q5_0Tile,
    Q5_1Tile, Q5KTile, Q6KRow, Q6KTile, Q8_0Tile, Shape, WeightLayout, pack,
};
use crate::mmvq::{Operands, dp4a, reference, tensor};
use crate::shape::ShapeError;
use crate::testing::{Case, Machine, Matrix, Random, floats, matrix, rms, within};
use cuda_std::launch::PreparedLaunch;
use sparkinfer_gguf::types::TensorType;

type Prepare<'a> = &'a dyn Fn(Shape, Operands, u32) -> Result<PreparedLaunch, ShapeError>;

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

fn product<L: WeightLayout>(
    machine: &mut dyn Machine,
    (ty, seed): (TensorType, u64),
    shape: Shape,
    input: fn(&[f32]) -> Input,
    prepare: Prepare,
) -> Result<f64, String> {
    let Matrix { bytes, values } = matrix(ty, seed, shape.rows * shape.columns)?;
    // Not a number wherever packing forgets to write.
    let mut packed = vec![0xff; shape.packed_bytes::<L>()];
    pack::<L>(shape, &bytes, &mut packed).map_err(|e| e.to_string())?;
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

/// Up to 70 rows of `columns`, or of up to 2,816 where it is 0: a multiple of the type's block.
fn shape(seed: u64, ty: TensorType, columns: usize) -> Shape {
    let mut random = Random::new(seed ^ 2);
    let any = ty.block_len() * (1 + random.below(2816 / ty.block_len()));
    Shape {
        rows: 1 + random.below(70),
        columns: if columns == 0 { any } else { columns },
    }
}

fn on_tensor_cores<L: WeightLayout>(
    machine: &mut dyn Machine,
    seed: u64,
    ty: TensorType,
    columns: usize,
) -> Result<f64, String> {
    let prepare = |shape, operands, max_blocks| tensor::launch(ty, shape, operands, max_blocks);
    product::<L>(machine, (ty, seed), shape(seed, ty, columns), wide, &prepare)
}

fn by_dp4a<L: WeightLayout>(
    machine: &mut dyn Machine,
    seed: u64,
    ty: TensorType,
    columns: usize,
    prepare: fn(Shape, Operands, u32) -> Result<PreparedLaunch, ShapeError>,
) -> Result<f64, String> {
    product::<L>(machine, (ty, seed), shape(seed, ty, columns), narrow, &prepare)
}

macro_rules! tensor {
    ($name:literal, $layout:ident, $ty:ident, $columns:literal) => {
        Case {
            name: $name,
            run: |m, seed| on_tensor_cores::<$layout>(m, seed, TensorType::$ty, $columns),
        }
    };
}

macro_rules! dp4a {
    ($name:literal, $layout:ident, $ty:ident, $columns:literal, $prepare:path) => {
        Case {
            name: $name,
            run: |m, seed| by_dp4a::<$layout>(m, seed, TensorType::$ty, $columns, $prepare),
        }
    };
}

pub(super) const CASES: &[Case] = &[
    tensor!("mmvq_q4k_tensor/any", Q4KTile, Q4_K, 0),
    tensor!("mmvq_q4k_tensor/2048", Q4KTile, Q4_K, 2048),
    tensor!("mmvq_q5k_tensor/any", Q5KTile, Q5_K, 0),
    tensor!("mmvq_q6k_tensor/any", Q6KTile, Q6_K, 0),
    tensor!("mmvq_q6k_tensor/2048", Q6KTile, Q6_K, 2048),
    tensor!("mmvq_q4_0_tensor", Q4_0Tile, Q4_0, 0),
    tensor!("mmvq_q4_1_tensor", Q4_1Tile, Q4_1, 0),
    tensor!("mmvq_q5_0_tensor", Q5_0Tile, Q5_0, 0),
    tensor!("mmvq_q5_0_tensor/704", Q5_0Tile, Q5_0, 704),
    tensor!("mmvq_q5_1_tensor", Q5_1Tile, Q5_1, 0),
    tensor!("mmvq_q8_0_tensor", Q8_0Tile, Q8_0, 0),
    tensor!("mmvq_q2k_tensor", Q2KTile, Q2_K, 0),
    tensor!("mmvq_q3k_tensor", Q3KTile, Q3_K, 0),
    tensor!("mmvq_iq4_nl_tensor", Iq4NlTile, IQ4_NL, 0),
    tensor!("mmvq_iq4_xs_tensor", Iq4XsTile, IQ4_XS, 0),
    tensor!("mmvq_mxfp4_tensor", Mxfp4Tile, MXFP4, 0),
    tensor!("mmvq_nvfp4_tensor", Nvfp4Tile, NVFP4, 0),
    dp4a!("mmvq_q4k_dp4a/any", Q4KRow, Q4_K, 0, dp4a::q4k),
    dp4a!("mmvq_q4k_dp4a_2048", Q4KRow, Q4_K, 2048, dp4a::q4k),
    dp4a!("mmvq_q6k_dp4a/any", Q6KRow, Q6_K, 0, dp4a::q6k),
    dp4a!("mmvq_q6k_dp4a_2048", Q6KRow, Q6_K, 2048, dp4a::q6k),
];
