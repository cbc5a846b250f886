//! Random matrices packed into tensor-core tiles.

use super::{Machine, matrix};
use crate::decode::rows::{Matrix, TileKind};
use crate::layout::{Q4KTile, Q6KTile, Shape, pack};
use sparkinfer_gguf::types::TensorType;

/// A matrix in tiles, and its values.
pub struct Tiled {
    /// The packed bytes.
    pub bytes: Vec<u8>,
    /// What they stand for, row after row.
    pub values: Vec<f32>,
    kind: TileKind,
    shape: Shape,
}

impl Tiled {
    /// `rows` random rows of `columns` weights, both as the packing asks.
    ///
    /// # Errors
    /// A shape that cannot be packed.
    pub fn new(kind: TileKind, rows: usize, columns: usize, seed: u64) -> Result<Self, String> {
        let shape = Shape { rows, columns };
        let ty = match kind {
            TileKind::Q4K => TensorType::Q4_K,
            TileKind::Q6K => TensorType::Q6_K,
        };
        let file = matrix(ty, seed, rows * columns)?;
        let bytes = match kind {
            TileKind::Q4K => {
                let mut packed = vec![0; shape.packed_bytes::<Q4KTile>()];
                pack::<Q4KTile>(shape, &file.bytes, &mut packed).map(|()| packed)
            }
            TileKind::Q6K => {
                let mut packed = vec![0; shape.packed_bytes::<Q6KTile>()];
                pack::<Q6KTile>(shape, &file.bytes, &mut packed).map(|()| packed)
            }
        };
        Ok(Self {
            bytes: bytes.map_err(|e| e.to_string())?,
            values: file.values,
            kind,
            shape,
        })
    }

    /// Uploads it. `experts` matrices may lie in one: the groups are then those of one expert.
    ///
    /// # Errors
    /// The machine's.
    pub fn upload(&self, machine: &mut dyn Machine, experts: usize) -> Result<Matrix, String> {
        let tiles = machine.upload(&self.bytes)?;
        Ok(Matrix::new(
            tiles,
            self.shape.rows.div_ceil(16 * experts) as u32 * 16,
            self.kind,
        ))
    }

    /// Rows of the matrix.
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// The products of rows `from … from + rows` with `x`, in f64.
    pub fn times(&self, from: usize, rows: usize, x: &[f64]) -> Vec<f64> {
        let columns = self.shape.columns;
        let dot = |row: usize| {
            self.values[row * columns..][..columns]
                .iter()
                .zip(x)
                .map(|(w, x)| f64::from(*w) * x)
                .sum()
        };
        (from..from + rows).map(dot).collect()
    }
}

/// `x` normalised in f64 and multiplied by `gain`.
pub fn normed(x: &[f64], gain: &[f32], eps: f32) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(eps)).sqrt();
    x.iter().zip(gain).map(|(v, g)| v * scale * f64::from(*g)).collect()
}
