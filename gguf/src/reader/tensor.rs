//! Tensors, viewed in place.

use std::ops::Range;

use crate::dequant::{RowError, dequantize_row};
use crate::types::TensorType;

/// Where a tensor lies.
pub(super) struct TensorInfo {
    pub(super) name: String,
    pub(super) ty: TensorType,
    pub(super) n_dims: usize,
    pub(super) dims: [u64; 4],
    pub(super) shard: usize,
    /// Bytes within the shard's file.
    pub(super) range: Range<usize>,
}

/// A tensor and its bytes in the file, as they are.
///
/// `dims[0]` is the contiguous dimension: a matrix `{n_in, n_out}` is `n_out` rows of `n_in` values, a stack of experts
/// `{n_in, n_out, n_expert}`. Missing dimensions are 1. No dimension is zero, rows are whole blocks, and `data` holds
/// exactly all rows: the reader has checked it. The bytes may lie at any address (see [`crate::blocks`]).
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Name in the file.
    pub name: &'a str,
    /// Storage type.
    pub ty: TensorType,
    /// Sizes, the contiguous dimension first.
    pub dims: [u64; 4],
    /// How many dimensions the file gives (0 for a scalar).
    pub n_dims: usize,
    /// All rows.
    pub data: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// The dimensions that the file gives.
    pub fn shape(&self) -> &[u64] {
        &self.dims[..self.n_dims]
    }

    /// Values per row.
    pub fn row_len(&self) -> usize {
        self.dims[0] as usize
    }

    /// Number of rows, over all experts.
    pub fn rows(&self) -> usize {
        self.elements() / self.row_len()
    }

    /// Number of values.
    pub fn elements(&self) -> usize {
        self.dims.iter().product::<u64>() as usize
    }

    /// Bytes per row.
    pub fn row_bytes(&self) -> usize {
        self.data.len() / self.rows()
    }

    /// The bytes of row `i`, counted over all experts.
    ///
    /// # Panics
    /// When there are not that many rows.
    pub fn row(&self, i: usize) -> &'a [u8] {
        let bytes = self.row_bytes();
        &self.data[i * bytes..][..bytes]
    }

    /// Writes the values of row `i` to `out`, of [`TensorView::row_len`] values.
    ///
    /// # Errors
    /// The type has no reference, or `out` is of another length.
    ///
    /// # Panics
    /// When there are not that many rows.
    pub fn dequantize_row(&self, i: usize, out: &mut [f32]) -> Result<(), RowError> {
        dequantize_row(self.ty, self.row(i), out)
    }

    /// All values, row by row.
    ///
    /// # Errors
    /// The type has no reference.
    pub fn dequantize(&self) -> Result<Vec<f32>, RowError> {
        if !self.ty.is_supported() {
            return Err(RowError::Unsupported(self.ty));
        }
        let mut values = vec![0.0; self.elements()];
        dequantize_row(self.ty, self.data, &mut values)?;
        Ok(values)
    }
}
