//! The matrices, activations and launches that are measured.

use anyhow::{Context as _, Result, ensure};
use cuda_std::launch::{Launcher, PreparedLaunch};
use sparkinfer::cuda::{Buffer, Gpu};
use sparkinfer_device::gemv;
use sparkinfer_device::layout::activation::{Narrow, Wide};
use sparkinfer_device::layout::{Q4KRow, Q6KRow, Shape, TileForm, WeightLayout, pack};
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

/// A kind of kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Tiles × 16-bit activations.
    Tensor,
    /// Re-packed rows × 8-bit activations.
    Dp4a,
    /// Weights as in the file, decoded where they are read, × floats.
    Gemv,
}

impl Form {
    /// The forms that a type has kernels of.
    fn all(ty: TensorType) -> Vec<Self> {
        let has = |form: &Self| match form {
            Self::Tensor => TileForm::of(ty).is_some(),
            Self::Dp4a => matches!(ty, TensorType::Q4_K | TensorType::Q6_K),
            Self::Gemv => ty.is_supported(),
        };
        [Self::Tensor, Self::Dp4a, Self::Gemv].into_iter().filter(has).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tensor => "tensor",
            Self::Dp4a => "dp4a",
            Self::Gemv => "gemv",
        }
    }

    /// The matrix as the kernel wants it.
    fn pack(self, ty: TensorType, shape: Shape, file: &[u8]) -> Result<Vec<u8>> {
        match (self, TileForm::of(ty)) {
            (Self::Tensor, Some(tiles)) => {
                let mut out = vec![0; tiles.packed_bytes(shape)];
                tiles.pack(shape, file, &mut out)?;
                Ok(out)
            }
            (Self::Dp4a, _) if ty == TensorType::Q4_K => packed::<Q4KRow>(shape, file),
            (Self::Dp4a, _) => packed::<Q6KRow>(shape, file),
            _ => Ok(file.to_vec()),
        }
    }

    /// The activation as the kernel wants it, and what that stands for.
    fn activation(self, x: &[f32]) -> (Vec<u8>, Vec<f64>) {
        match self {
            Self::Tensor => {
                let records = Wide::quantize(x);
                let values = Wide::dequantize(&records, x.len());
                (records, values)
            }
            Self::Dp4a => {
                let records = Narrow::quantize(x);
                let values = Narrow::dequantize(&records, x.len());
                (records, values)
            }
            Self::Gemv => {
                let bytes = x.iter().flat_map(|v| v.to_le_bytes()).collect();
                (bytes, x.iter().map(|v| f64::from(*v)).collect())
            }
        }
    }

    fn prepare(self, ty: TensorType, shape: Shape, o: Operands, max_blocks: u32) -> Result<PreparedLaunch, ShapeError> {
        match self {
            Self::Tensor => tensor::launch(ty, shape, o, max_blocks),
            Self::Dp4a if ty == TensorType::Q4_K => dp4a::q4k(shape, o, max_blocks),
            Self::Dp4a => dp4a::q6k(shape, o, max_blocks),
            Self::Gemv => gemv::launch(ty, shape, o, max_blocks),
        }
    }
}

/// The types that have kernels, those that files use most first.
pub fn types() -> Vec<TensorType> {
    let mut types = vec![TensorType::Q4_K, TensorType::Q6_K, TensorType::Q5_K, TensorType::Q8_0];
    let rest = TensorType::all().filter(|ty| matrix(*ty, 0, 256).is_ok() && !types.contains(ty));
    types.extend(rest.collect::<Vec<_>>());
    types
}

fn packed<L: WeightLayout>(shape: Shape, file: &[u8]) -> Result<Vec<u8>> {
    let mut out = vec![0; shape.packed_bytes::<L>()];
    pack::<L>(shape, file, &mut out)?;
    Ok(out)
}

/// One kernel with its matrix and activation in device memory.
pub struct Product {
    pub name: &'static str,
    form: Form,
    weights: Buffer<u8>,
    x: Buffer<u8>,
    /// What the first rows must come to.
    want: Vec<f64>,
}

/// Everything of one weight type.
pub struct Workload {
    pub shape: Shape,
    pub products: Vec<Product>,
    ty: TensorType,
    row_bytes: usize,
    y: Buffer<f32>,
}

impl Workload {
    /// Makes and uploads a random matrix of `rows` rows for each of the type's forms.
    pub fn new(gpu: &Gpu, ty: TensorType, rows: usize) -> Result<Self> {
        let distinct = Shape {
            rows: DISTINCT_ROWS,
            columns: COLUMNS,
        };
        let weights = matrix(ty, 1, distinct.rows * COLUMNS).map_err(anyhow::Error::msg)?;
        let x = floats(2, COLUMNS, 1.0);
        let product = |form: Form| -> Result<Product> {
            let (activation, values) = form.activation(&x);
            let packed = form.pack(ty, distinct, &weights.bytes)?;
            Ok(Product {
                name: form.name(),
                form,
                weights: repeated(gpu, &packed, rows / DISTINCT_ROWS)?,
                x: Buffer::from_slice(gpu.stream(), &activation)?,
                want: reference(&weights.values[..CHECKED_ROWS * COLUMNS], &values),
            })
        };
        Ok(Self {
            shape: Shape { rows, columns: COLUMNS },
            products: Form::all(ty).into_iter().map(product).collect::<Result<_>>()?,
            ty,
            row_bytes: COLUMNS / ty.block_len() * ty.block_bytes(),
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
        let shape = Shape { rows, columns: COLUMNS };
        Ok(product.form.prepare(self.ty, shape, operands, max_blocks)?)
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
