//! The matrices, activations and launches that are measured.

use anyhow::{Context as _, Result, ensure};
use cuda_std::launch::{Launcher, PreparedLaunch};
use sparkinfer::cuda::{Buffer, Gpu};
use sparkinfer_device::layout::activation::{Narrow, Wide};
use sparkinfer_device::layout::{Q4KRow, Q4KTile, Q5KTile, Q6KRow, Q6KTile, Q8_0Tile, Shape, WeightLayout, pack};
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

/// A weight type with its kernels.
pub struct Format {
    pub name: &'static str,
    ty: TensorType,
    tensor: (Pack, Prepare),
    dp4a: Option<(Pack, Prepare)>,
}

/// What is measured.
pub const FORMATS: &[Format] = &[
    Format {
        name: "Q4_K",
        ty: TensorType::Q4_K,
        tensor: (packed::<Q4KTile>, |s, o, n| tensor::launch(TensorType::Q4_K, s, o, n)),
        dp4a: Some((packed::<Q4KRow>, dp4a::q4k)),
    },
    Format {
        name: "Q6_K",
        ty: TensorType::Q6_K,
        tensor: (packed::<Q6KTile>, |s, o, n| tensor::launch(TensorType::Q6_K, s, o, n)),
        dp4a: Some((packed::<Q6KRow>, dp4a::q6k)),
    },
    Format {
        name: "Q5_K",
        ty: TensorType::Q5_K,
        tensor: (packed::<Q5KTile>, |s, o, n| tensor::launch(TensorType::Q5_K, s, o, n)),
        dp4a: None,
    },
    Format {
        name: "Q8_0",
        ty: TensorType::Q8_0,
        tensor: (packed::<Q8_0Tile>, |s, o, n| tensor::launch(TensorType::Q8_0, s, o, n)),
        dp4a: None,
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
    pub products: Vec<Product>,
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
        let mut products = vec![product("tensor", format.tensor, wide, wide_x)?];
        if let Some(dp4a) = format.dp4a {
            products.push(product("dp4a", dp4a, narrow, narrow_x)?);
        }
        Ok(Self {
            shape: Shape { rows, columns: COLUMNS },
            products,
            row_bytes: COLUMNS / format.ty.block_len() * format.ty.block_bytes(),
            y: Buffer::zeroed(gpu.stream(), rows)?,
        })
    }

    /// Bytes of weights, which is what every launch reads.
    pub fn bytes(&self) -> usize {
        self.shape.rows * self.row_bytes
    }

    /// The buffer that the streaming read goes over.
    pub fn stream_buffer(&self) -> &Buffer<u8> {
        &self.products[0].weights
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

    /// Compares the products with f64: the largest error of each, relative to the results' root mean square.
    pub fn check(&self, gpu: &Gpu) -> Result<Vec<(&'static str, f64)>> {
        let mut errors = Vec::new();
        for product in &self.products {
            gpu.launch(&self.launch(product, 0, self.shape.rows, u32::MAX)?)?;
            let mut got = vec![0f32; CHECKED_ROWS];
            self.y
                .read(gpu.stream(), 0, &mut got)
                .context("reading the product back")?;
            let difference = |(got, want): (&f32, &f64)| (f64::from(*got) - want).abs();
            let largest = got.iter().zip(&product.want).map(difference).fold(0f64, f64::max);
            let error = largest / rms(&product.want);
            ensure!(error < 2e-5, "{}: the product is wrong by {error:e}", product.name);
            errors.push((product.name, error));
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
