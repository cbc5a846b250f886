//! The tile layout of each tensor type that has one.

use super::{
    Iq4NlTile, Iq4XsTile, LayoutError, Mxfp4Tile, Nvfp4Tile, Q2KTile, Q3KTile, Q4_0Tile, Q4_1Tile, Q4KTile, Q5_0Tile,
    Q5_1Tile, Q5KTile, Q6KTile, Q8_0Tile, Shape, WeightLayout, pack_group,
};
use sparkinfer_gguf::types::TensorType;

/// [`pack_group`] of one layout.
type PackGroup = fn(Shape, &[u8], usize, &mut [u8]) -> Result<(), LayoutError>;

/// A [`WeightLayout`] chosen at run time.
#[derive(Clone, Copy, Debug)]
pub struct TileForm {
    row_bytes: usize,
    pack_group: PackGroup,
}

impl TileForm {
    const fn new<L: WeightLayout>() -> Self {
        Self {
            row_bytes: L::ROW_BYTES,
            pack_group: pack_group::<L>,
        }
    }

    /// Bytes of one group of [`TILE_ROWS`](super::TILE_ROWS) rows.
    pub const fn group_bytes(self, shape: Shape) -> usize {
        super::TILE_ROWS * shape.tiles() * self.row_bytes
    }

    /// Bytes of the packed matrix.
    pub const fn packed_bytes(self, shape: Shape) -> usize {
        shape.rows.div_ceil(super::TILE_ROWS) * self.group_bytes(shape)
    }

    /// As [`pack_group`].
    ///
    /// # Errors
    /// As [`pack_group`].
    pub fn pack_group(self, shape: Shape, file: &[u8], index: usize, group: &mut [u8]) -> Result<(), LayoutError> {
        (self.pack_group)(shape, file, index, group)
    }

    /// As [`pack`](super::pack); `packed` has [`packed_bytes`](Self::packed_bytes).
    ///
    /// # Errors
    /// As [`pack_group`].
    pub fn pack(self, shape: Shape, file: &[u8], packed: &mut [u8]) -> Result<(), LayoutError> {
        let mut groups = packed.chunks_exact_mut(self.group_bytes(shape).max(1)).enumerate();
        groups.try_for_each(|(index, group)| self.pack_group(shape, file, index, group))
    }
}

macro_rules! forms {
    ($($ty:ident = $layout:ty;)*) => {
        impl TileForm {
            /// The tiles of a type, if it has any.
            pub const fn of(ty: TensorType) -> Option<Self> {
                match ty {
                    $(TensorType::$ty => Some(Self::new::<$layout>()),)*
                    _ => None,
                }
            }
        }
    };
}

forms! {
    Q4_0 = Q4_0Tile;
    Q4_1 = Q4_1Tile;
    Q5_0 = Q5_0Tile;
    Q5_1 = Q5_1Tile;
    Q8_0 = Q8_0Tile;
    Q2_K = Q2KTile;
    Q3_K = Q3KTile;
    Q4_K = Q4KTile;
    Q5_K = Q5KTile;
    Q6_K = Q6KTile;
    IQ4_NL = Iq4NlTile;
    IQ4_XS = Iq4XsTile;
    MXFP4 = Mxfp4Tile;
    NVFP4 = Nvfp4Tile;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_as_large_as_the_file() {
        for ty in TensorType::all() {
            if let Some(form) = TileForm::of(ty) {
                let shape = Shape { rows: 40, columns: 512 };
                let file = 48 * 512 / ty.block_len() * ty.block_bytes();
                assert_eq!(form.packed_bytes(shape), file, "{ty}");
                assert_eq!(3 * form.group_bytes(shape), file, "{ty}");
            }
        }
    }
}
