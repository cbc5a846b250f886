//! References to tensors: names, types and the part of the tensor that is meant.

use std::ops::Range;

use sparkinfer_gguf::dequant::dequantize_row;
use sparkinfer_gguf::{Gguf, TensorType};

use super::error::{Result, Shape};

/// Rows of a tensor, used as a matrix (or as a matrix per expert).
///
/// The tensor is `[cols, expert_rows, experts]`, cols contiguous; expert e's matrix is the `rows` rows
/// that begin at row `e · expert_rows + first_row`. `y[r] = Σ_c W[r][c] · x[c]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// Name of the tensor.
    pub tensor: String,
    /// Its type.
    pub ty: TensorType,
    /// Inputs; the length of a row.
    pub cols: usize,
    /// Outputs; rows of one matrix.
    pub rows: usize,
    /// Rows of the tensor before the matrix, of each expert.
    pub first_row: usize,
    /// Rows of the tensor per expert.
    pub expert_rows: usize,
    /// Number of matrices; 1 for an ordinary one.
    pub experts: usize,
}

impl Matrix {
    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.cols / self.ty.block_len() * self.ty.block_bytes()
    }

    /// Bytes of one matrix.
    pub fn bytes(&self) -> u64 {
        self.rows as u64 * self.row_bytes() as u64
    }

    /// Where the matrix of `expert` lies in the tensor's data.
    pub fn byte_range(&self, expert: usize) -> Range<usize> {
        let start = (expert * self.expert_rows + self.first_row) * self.row_bytes();
        start..start + self.rows * self.row_bytes()
    }

    /// The tensor's data, from which [`Matrix::byte_range`] cuts.
    ///
    /// # Errors
    /// The tensor is not in `gguf`, or is smaller there than in the file that was described.
    pub fn data<'g>(&self, gguf: &'g Gguf) -> Result<&'g [u8]> {
        let data = gguf.require_tensor(&self.tensor)?.data;
        let needed = Shape::of(&[self.cols, self.expert_rows, self.experts]);
        let enough = data.get(..self.byte_range(self.experts - 1).end).is_some();
        enough
            .then_some(data)
            .ok_or_else(|| gguf.tensor_error(&self.tensor, format!("is smaller than {needed}")))
    }
}

/// Consecutive values of a one-dimensional tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vector {
    /// Name of the tensor.
    pub tensor: String,
    /// Its type.
    pub ty: TensorType,
    /// Index of the first value.
    pub first: usize,
    /// Number of values.
    pub len: usize,
}

impl Vector {
    /// Bytes of the values.
    pub fn bytes(&self) -> u64 {
        (self.len / self.ty.block_len() * self.ty.block_bytes()) as u64
    }

    /// The values.
    ///
    /// # Errors
    /// The tensor is not in `gguf`, or is shorter there than in the file that was described.
    pub fn values(&self, gguf: &Gguf) -> Result<Vec<f32>> {
        let mut all = vec![0.0; self.first + self.len];
        let data = gguf.require_tensor(&self.tensor)?.data;
        let bytes = self
            .ty
            .row_bytes(all.len())
            .and_then(|bytes| data.get(..bytes))
            .unwrap_or(data);
        dequantize_row(self.ty, bytes, &mut all).map_err(|error| gguf.tensor_error(&self.tensor, error))?;
        Ok(all.split_off(self.first))
    }
}

/// `y = (W · x) · scale + bias`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linear {
    /// W.
    pub matrix: Matrix,
    /// A factor for the result: one value, or one per expert.
    pub scale: Option<Vector>,
    /// Added to the result, one value per row.
    pub bias: Option<Vector>,
}

impl Linear {
    /// The part of a fused matrix (of each expert) that makes the results `first .. first + rows`.
    pub(super) fn rows(&self, first: usize, rows: usize) -> Self {
        let first_row = self.matrix.first_row + first;
        let bias = self.bias.clone().map(|bias| Vector {
            first: bias.first + first,
            len: rows,
            ..bias
        });
        Linear {
            matrix: Matrix {
                first_row,
                rows,
                ..self.matrix.clone()
            },
            scale: self.scale.clone(),
            bias,
        }
    }

    /// Bytes that a product with one of its matrices reads.
    pub fn bytes(&self) -> u64 {
        self.matrix.bytes() + self.bias.as_ref().map_or(0, Vector::bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_fused_expert_stacks() {
        let up = Matrix {
            tensor: "blk.0.ffn_gate_up_exps.weight".into(),
            ty: TensorType::Q8_0,
            cols: 64,
            rows: 10,
            first_row: 10,
            expert_rows: 20,
            experts: 3,
        };
        assert_eq!((up.row_bytes(), up.bytes()), (68, 680));
        assert_eq!(up.byte_range(0), 680..1360);
        assert_eq!(up.byte_range(2), 50 * 68..60 * 68);
    }
}
