//! How a matrix of the file lies in device memory.

use rayon::prelude::*;
use sparkinfer_device::layout::{Q4KTile, Q6KTile, Shape, WeightLayout, pack_group};
use sparkinfer_gguf::TensorType;

use super::backend::{DeviceError, Result};
use crate::model::Matrix;

/// The order of a matrix's bytes on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// As in the file, row after row.
    File,
    /// Q4_K in tensor-core tiles of 16 rows × 256 columns.
    Q4KTile,
    /// Q6_K in tensor-core tiles of 16 rows × 256 columns.
    Q6KTile,
}

impl Form {
    /// The form in which the fused kernels read a matrix, if they read its type at all.
    pub fn tiled(matrix: &Matrix) -> Option<Self> {
        match matrix.ty {
            TensorType::Q4_K => Some(Self::Q4KTile),
            TensorType::Q6_K => Some(Self::Q6KTile),
            _ => None,
        }
    }

    /// Bytes of one of the matrix's experts (of the matrix, if it has none) in this form.
    pub fn expert_bytes(self, matrix: &Matrix) -> usize {
        match self {
            Self::File => matrix.rows * matrix.row_bytes(),
            Self::Q4KTile => shape(matrix).packed_bytes::<Q4KTile>(),
            Self::Q6KTile => shape(matrix).packed_bytes::<Q6KTile>(),
        }
    }

    /// Bytes of the smallest piece that [`Form::pack`] can write, a row or a group of rows.
    pub fn unit_bytes(self, matrix: &Matrix) -> usize {
        match self {
            Self::File => matrix.row_bytes(),
            Self::Q4KTile => shape(matrix).group_bytes::<Q4KTile>(),
            Self::Q6KTile => shape(matrix).group_bytes::<Q6KTile>(),
        }
    }

    /// Writes the units from number `first` on into `out`, whose length is a multiple of the unit's, in parallel.
    ///
    /// `expert` holds the rows of one expert as in the file.
    ///
    /// # Errors
    /// A shape that the form does not take.
    pub fn pack(self, matrix: &Matrix, expert: &[u8], first: usize, out: &mut [u8]) -> Result<()> {
        match self {
            Self::File => {
                let start = first * matrix.row_bytes();
                out.copy_from_slice(&expert[start..start + out.len()]);
                Ok(())
            }
            Self::Q4KTile => pack_groups::<Q4KTile>(matrix, expert, first, out),
            Self::Q6KTile => pack_groups::<Q6KTile>(matrix, expert, first, out),
        }
    }
}

fn shape(matrix: &Matrix) -> Shape {
    Shape {
        rows: matrix.rows,
        columns: matrix.cols,
    }
}

fn pack_groups<L: WeightLayout>(matrix: &Matrix, expert: &[u8], first: usize, out: &mut [u8]) -> Result<()> {
    let shape = shape(matrix);
    out.par_chunks_exact_mut(shape.group_bytes::<L>())
        .enumerate()
        .try_for_each(|(i, group)| pack_group::<L>(shape, expert, first + i, group))
        .map_err(|error| DeviceError(format!("tensor {}: {error}", matrix.tensor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(ty: TensorType, rows: usize, cols: usize) -> Matrix {
        Matrix {
            tensor: "w".into(),
            ty,
            cols,
            rows,
            first_row: 0,
            expert_rows: rows,
            experts: 1,
        }
    }

    #[test]
    fn k_quants_have_tiles() {
        assert_eq!(Form::tiled(&matrix(TensorType::Q4_K, 32, 512)), Some(Form::Q4KTile));
        assert_eq!(Form::tiled(&matrix(TensorType::Q6_K, 16, 256)), Some(Form::Q6KTile));
        assert_eq!(Form::tiled(&matrix(TensorType::Q8_0, 32, 256)), None);
    }

    #[test]
    fn no_form_needs_more_bytes_than_the_file() {
        for (form, ty) in [(Form::Q4KTile, TensorType::Q4_K), (Form::Q6KTile, TensorType::Q6_K)] {
            let matrix = matrix(ty, 48, 512);
            assert_eq!(form.expert_bytes(&matrix), Form::File.expert_bytes(&matrix));
            assert_eq!(form.expert_bytes(&matrix), 3 * form.unit_bytes(&matrix));
        }
    }

    #[test]
    fn packing_in_pieces_equals_packing_at_once() {
        let matrix = matrix(TensorType::Q4_K, 48, 256);
        let file: Vec<u8> = (0..48 * 144).map(|i| (i * 7 + i / 251) as u8).collect();
        let (form, unit) = (Form::Q4KTile, Form::Q4KTile.unit_bytes(&matrix));
        let mut whole = vec![0; 3 * unit];
        form.pack(&matrix, &file, 0, &mut whole).unwrap();
        let mut pieces = vec![0; 3 * unit];
        form.pack(&matrix, &file, 0, &mut pieces[..unit]).unwrap();
        form.pack(&matrix, &file, 1, &mut pieces[unit..]).unwrap();
        assert_eq!(whole, pieces);
    }
}
