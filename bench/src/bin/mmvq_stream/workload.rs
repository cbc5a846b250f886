//! The matrices, activations and launches that are measured.

use anyhow::{Context as _, Result, ensure};
use cuda_std::launch::{Launcher, PreparedLaunch};
use sparkinfer::cuda::{Buffer, Gpu};
use sparkinfer_device::layout::activation::{Narrow, Wide};
use sparkinfer_device::layout::{Q4KRow, Q4KTile, Q6KRow, Q6KTile, Shape, WeightLayout, pack};
use sparkinfer_device::mmvq::{Operands, dp4a, reference, tensor};
use sparkinfer_device::shape::ShapeError;
use sparkinfer_device::testing::{floats, matrix, rms};
use sparkinfer_gguf::types::TensorType;

/// Columns of a row.
pub const COLUMNS: usize = 2048;
/// Rows that differ; the matrix repeats them.
pub const DISTINCT_ROWS: usize = 4096;
/// Rows that are compared with f64.
const CHECKED_ROWS: usize = 256;

type Pack = fn(Shape, &[u8]) -> Result<Vec<u8>>;
type Prepare = fn(Shape, Operands, u32) -> Result<PreparedLaunch, ShapeError>;

/// A weight type with its two kernels.
pub struct Format {
    pub name: &'static str,
    ty: TensorType,
    block_bytes: usize,
    tensor: (Pack, Prepare),
    dp4a: (Pack, Prepare),
}

/// What is measured.
pub const FORMATS: &[Format] = &[
    Format {
        name: "Q4_K",
        ty: TensorType::Q4_K,
        block_bytes: 144,
        tensor: (packed::<Q4KTile>, tensor::q4k),
        dp4a: (packed::<Q4KRow>, dp4a::q4k),
    },
    Format {
        name: "Q6_K",
        ty: TensorType::Q6_K,
        block_bytes: 210,
        tensor: (packed::<Q6KTile>, tensor::q6k),
        dp4a: (packed::<Q6KRow>, dp4a::q6k),
    },
];

fn packed<L: WeightLayout>(shape: Shape, file: &[u8]) -> Result<Vec<u8>> {
    let mut out = vec![0; shape.packed_bytes::<L>()];
    pack::<L>(shape, file, &mut out)?;
    Ok(out)
}

/// One kernel with its matrix and activation in device memory.
pub struct Product {
    pub name: &'static str,
    prepare: Prepare,
    weights: Buffer<u8>,
    x: Buffer<u8>,
    /// What the first rows must come to.
    want: Vec<f64>,
}

/// Everything of one weight type.
pub struct Workload {
    pub shape: Shape,
    pub products: [Product; 2],
    row_bytes: usize,
    y: Buffer<f32>,
}

impl Workload {
    /// Makes and uploads a random matrix of `rows` rows in both layouts.
    pub fn new(gpu: &Gpu, format: &Format, rows: usize) -> Result<Self> {
        let distinct = Shape {
            rows: DISTINCT_ROWS,
            columns: COLUMNS,
        };
        let weights = matrix(format.ty, 1, distinct.rows * COLUMNS).map_err(anyhow::Error::msg)?;
        let x = floats(2, COLUMNS, 1.0);
        let product = |name, (pack, prepare): (Pack, Prepare), records: Vec<u8>, values: Vec<f64>| -> Result<Product> {
            Ok(Product {
                name,
                prepare,
                weights: repeated(gpu, &pack(distinct, &weights.bytes)?, rows / DISTINCT_ROWS)?,
                x: Buffer::from_slice(gpu.stream(), &records)?,
                want: reference(&weights.values[..CHECKED_ROWS * COLUMNS], &values),
            })
        };
        let (wide, narrow) = (Wide::quantize(&x), Narrow::quantize(&x));
        let (wide_x, narrow_x) = (Wide::dequantize(&wide, COLUMNS), Narrow::dequantize(&narrow, COLUMNS));
        Ok(Self {
            shape: Shape { rows, columns: COLUMNS },
            products: [
                product("dp4a", format.dp4a, narrow, narrow_x)?,
                product("tensor", format.tensor, wide, wide_x)?,
            ],
            row_bytes: COLUMNS / 256 * format.block_bytes,
            y: Buffer::zeroed(gpu.stream(), rows)?,
        })
    }

    /// Bytes of weights, which is what every launch reads.
    pub fn bytes(&self) -> usize {
        self.shape.rows * self.row_bytes
    }

    /// The buffer that the streaming read goes over.
    pub fn stream_buffer(&self) -> &Buffer<u8> {
        &self.products[1].weights
    }

    /// The product of `rows` rows from `first` on.
    pub fn launch(&self, product: &Product, first: usize, rows: usize, max_blocks: u32) -> Result<PreparedLaunch> {
        let weights = product.weights.ptr().byte_add(first * self.row_bytes);
        let operands = Operands {
            weights,
            x: product.x.ptr(),
            y: self.y.ptr().add(first),
        };
        Ok((product.prepare)(
            Shape { rows, columns: COLUMNS },
            operands,
            max_blocks,
        )?)
    }

    /// Compares both products with f64: the largest error of each, relative to the results' root mean square.
    pub fn check(&self, gpu: &Gpu) -> Result<[f64; 2]> {
        let mut errors = [0f64; 2];
        for (product, worst) in self.products.iter().zip(&mut errors) {
            gpu.launch(&self.launch(product, 0, self.shape.rows, u32::MAX)?)?;
            let mut got = vec![0f32; CHECKED_ROWS];
            self.y
                .read(gpu.stream(), 0, &mut got)
                .context("reading the product back")?;
            let difference = |(got, want): (&f32, &f64)| (f64::from(*got) - want).abs();
            let largest = got.iter().zip(&product.want).map(difference).fold(0f64, f64::max);
            *worst = largest / rms(&product.want);
            ensure!(*worst < 2e-5, "{}: the product is wrong by {worst:e}", product.name);
        }
        Ok(errors)
    }
}

/// `part`, `times` times over, in device memory.
fn repeated(gpu: &Gpu, part: &[u8], times: usize) -> Result<Buffer<u8>> {
    let mut buffer = Buffer::uninitialised(gpu.context(), part.len() * times)?;
    for i in 0..times {
        buffer.write(gpu.stream(), i * part.len(), part)?;
    }
    Ok(buffer)
}
