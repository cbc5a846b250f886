//! How a matrix of the file lies in device memory.

use rayon::prelude::*;
use sparkinfer_device::layout::{Shape, TileForm};
use sparkinfer_gguf::TensorType;

use super::backend::{DeviceError, Result};
use crate::model::Matrix;

/// The order of a matrix's bytes on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// As in the file, row after row.
    File,
    /// Tensor-core tiles of 16 rows × 256 columns.
    Tiles,
}

impl Form {
    /// The form in which tensor cores read a matrix, if they read its type at all.
    pub fn tiled(matrix: &Matrix) -> Option<Self> {
        TileForm::of(matrix.ty).map(|_| Self::Tiles)
    }

    /// The form in which the fused kernels read a matrix, if they read its type at all.
    pub fn fused(matrix: &Matrix) -> Option<Self> {
        matches!(matrix.ty, TensorType::Q4_K | TensorType::Q6_K).then_some(Self::Tiles)
    }

    /// The tiles of the matrix's type in this form; none where the bytes are the file's.
    fn tiles(self, matrix: &Matrix) -> Option<TileForm> {
        TileForm::of(matrix.ty).filter(|_| self == Self::Tiles)
    }

    /// Bytes of one of the matrix's experts (of the matrix, if it has none) in this form.
    pub fn expert_bytes(self, matrix: &Matrix) -> usize {
        let file = matrix.rows * matrix.row_bytes();
        self.tiles(matrix)
            .map_or(file, |tiles| tiles.packed_bytes(shape(matrix)))
    }

    /// Bytes of the smallest piece that [`Form::pack`] can write, a row or a group of rows.
    pub fn unit_bytes(self, matrix: &Matrix) -> usize {
        let row = matrix.row_bytes();
        self.tiles(matrix).map_or(row, |tiles| tiles.group_bytes(shape(matrix)))
    }

    /// Writes the units from number `first` on into `out`, whose length is a multiple of the unit's, in parallel.
    ///
    /// `expert` holds the rows of one expert as in the file.
    ///
    /// # Errors
    /// A shape that the form does not take.
    pub fn pack(self, matrix: &Matrix, expert: &[u8], first: usize, out: &mut [u8]) -> Result<()> {
        let Some(tiles) = self.tiles(matrix) else {
            let start = first * matrix.row_bytes();
            out.copy_from_slice(&expert[start..start + out.len()]);
            return Ok(());
        };
        let shape = shape(matrix);
        out.par_chunks_exact_mut(tiles.group_bytes(shape))
            .enumerate()
            .try_for_each(|(i, group)| tiles.pack_group(shape, expert, first + i, group))
            .map_err(|error| DeviceError(format!("tensor {}: {error}", matrix.tensor)))
    }
}

fn shape(matrix: &Matrix) -> Shape {
    Shape {
        rows: matrix.rows,
        columns: matrix.cols,
    }
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
    fn quantised_types_have_tiles() {
        let forms = |ty| {
            let matrix = matrix(ty, 32, 512);
            (Form::tiled(&matrix), Form::fused(&matrix))
        };
        assert_eq!(forms(TensorType::Q4_K), (Some(Form::Tiles), Some(Form::Tiles)));
        assert_eq!(forms(TensorType::NVFP4), (Some(Form::Tiles), None));
        assert_eq!(forms(TensorType::F16), (None, None));
    }

    #[test]
    fn no_form_needs_more_bytes_than_the_file() {
        for ty in TensorType::all() {
            let matrix = matrix(ty, 48, 512);
            if let Some(form) = Form::tiled(&matrix) {
                assert_eq!(form.expert_bytes(&matrix), Form::File.expert_bytes(&matrix), "{ty}");
                assert_eq!(form.expert_bytes(&matrix), 3 * form.unit_bytes(&matrix), "{ty}");
            }
        }
    }

    #[test]
    fn packing_in_pieces_equals_packing_at_once() {
        let matrix = matrix(TensorType::Q4_K, 48, 256);
        let file: Vec<u8> = (0..48 * 144).map(|i| (i * 7 + i / 251) as u8).collect();
        let (form, unit) = (Form::Tiles, Form::Tiles.unit_bytes(&matrix));
        let mut whole = vec![0; 3 * unit];
        form.pack(&matrix, &file, 0, &mut whole).unwrap();
        let mut pieces = vec![0; 3 * unit];
        form.pack(&matrix, &file, 0, &mut pieces[..unit]).unwrap();
        form.pack(&matrix, &file, 1, &mut pieces[unit..]).unwrap();
        assert_eq!(whole, pieces);
    }
}
