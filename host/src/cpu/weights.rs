//! Weights as the engine uses them: the file's bytes and how to multiply with them.

use sparkinfer_gguf::dequant::dequantize_row;
use sparkinfer_gguf::{Error, Gguf, TensorType};

use super::engine::Numerics;
use super::simd::{GroupType, KType};
use crate::model::{Linear, Vector};

/// How the rows of a matrix are multiplied with activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Dequantised, with activations in f32.
    Float,
    /// With activations in 8-bit blocks of 256.
    Super(KType),
    /// With activations in 8-bit blocks of 32.
    Group(GroupType),
}

impl Kernel {
    fn of(ty: TensorType, numerics: Numerics) -> Self {
        match (numerics, KType::of(ty), GroupType::of(ty)) {
            (Numerics::Practical, Some(ty), _) => Kernel::Super(ty),
            (Numerics::Practical, _, Some(ty)) => Kernel::Group(ty),
            _ => Kernel::Float,
        }
    }
}

/// One or more matrices of equal shape (experts), in the file's own bytes.
pub(super) struct Weight<'m> {
    data: &'m [u8],
    ty: TensorType,
    pub(super) kernel: Kernel,
    pub(super) cols: usize,
    pub(super) rows: usize,
    pub(super) row_bytes: usize,
    /// Bytes before the first row, and from one expert to the next.
    first: usize,
    stride: usize,
    /// Multiplies results: none, one for all, or one per expert.
    scale: Vec<f32>,
    /// Added to results: none, or one per row.
    pub(super) bias: Vec<f32>,
}

impl<'m> Weight<'m> {
    pub(super) fn load(gguf: &'m Gguf, linear: &Linear, numerics: Numerics) -> Result<Self, Error> {
        let matrix = &linear.matrix;
        let row_bytes = matrix.row_bytes();
        Ok(Weight {
            data: matrix.data(gguf)?,
            ty: matrix.ty,
            kernel: Kernel::of(matrix.ty, numerics),
            cols: matrix.cols,
            rows: matrix.rows,
            row_bytes,
            first: matrix.first_row * row_bytes,
            stride: matrix.expert_rows * row_bytes,
            scale: optional_values(gguf, linear.scale.as_ref())?,
            bias: optional_values(gguf, linear.bias.as_ref())?,
        })
    }

    /// The bytes of `rows` rows of an expert's matrix, from row `first` on.
    pub(super) fn rows_of(&self, expert: usize, first: usize, rows: usize) -> &'m [u8] {
        let start = self.first + expert * self.stride + first * self.row_bytes;
        &self.data[start..start + rows * self.row_bytes]
    }

    /// What the results of an expert are multiplied by.
    pub(super) fn scale(&self, expert: usize) -> f32 {
        self.scale.get(expert).or(self.scale.first()).copied().unwrap_or(1.0)
    }

    /// Dequantises rows given as bytes.
    pub(super) fn dequantize(&self, bytes: &[u8], out: &mut [f32]) {
        // The file was checked: the type is supported and rows are whole.
        if dequantize_row(self.ty, bytes, out).is_err() {
            out.fill(f32::NAN);
        }
    }
}

/// The values of a vector, or none.
pub(super) fn optional_values(gguf: &Gguf, vector: Option<&Vector>) -> Result<Vec<f32>, Error> {
    vector.map_or(Ok(Vec::new()), |vector| vector.values(gguf))
}
