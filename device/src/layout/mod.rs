//! How weights and activations lie in GPU memory.
//!
//! A file stores a matrix row by row, block after block. A kernel wants each lane's share in one aligned 16-byte
//! load. So weights are re-packed once, at load: the same bits in another order, never more bytes than the file has
//! (apart from zero rows that fill the last row group), and every packing has its inverse here, so that a test can
//! show that no bit was lost.
//!
//! | layout | group | used by |
//! |---|---|---|
//! | [`Q4KTile`], [`Q5KTile`], [`Q6KTile`] | 16 rows, one tile per 256 columns | tensor-core matrix × vector |
//! | [`Q2KTile`], [`Q3KTile`], [`Iq4XsTile`] | the same | as above |
//! | [`Q4_0Tile`], [`Q4_1Tile`], [`Q5_0Tile`], [`Q5_1Tile`], [`Q8_0Tile`] | the same; the last tile of a row may be filled with zeros | as above |
//! | [`Iq4NlTile`], [`Mxfp4Tile`], [`Nvfp4Tile`] | as those | as above |
//! | [`Q4KRow`] | 1 row, quants and headers apart | dp4a matrix × vector |
//! | [`Q6KRow`] | 8 rows, the parts of a block apart | dp4a matrix × vector |
//!
//! [`TileForm`] finds the tiles of a type at run time. [`activation`] holds the two forms of a quantised activation vector.
//!
//! Everything here is plain arithmetic on byte slices without allocation, so that a loader can pack row groups from
//! many threads ([`pack_group`]) straight into its staging memory.

pub mod activation;
mod bytes;
mod code_tile;
mod codes;
mod form;
mod nibbles;
mod nvfp4_tile;
mod q4k_row;
mod q4k_tile;
mod q5k_tile;
mod q6k_row;
mod q6k_tile;
mod q8_0_tile;
mod small_tile;
mod two_bit_tile;

pub use code_tile::{Iq4NlTile, Iq4XsTile, Mxfp4Tile};
pub use form::TileForm;
pub use nvfp4_tile::Nvfp4Tile;
pub use q4k_row::Q4KRow;
pub use q4k_tile::Q4KTile;
pub use q5k_tile::Q5KTile;
pub use q6k_row::Q6KRow;
pub use q6k_tile::Q6KTile;
pub use q8_0_tile::Q8_0Tile;
pub use small_tile::{Q4_0Tile, Q4_1Tile, Q5_0Tile, Q5_1Tile, SmallTile};
pub use two_bit_tile::{Q2KTile, Q3KTile};

use core::fmt;

/// Rows of a tensor-core tile.
pub const TILE_ROWS: usize = 16;
/// Columns of a tensor-core tile, and of a K-quant block.
pub const TILE_COLUMNS: usize = 256;

/// One way of laying out a matrix of quantised blocks: groups of `GROUP_ROWS` rows, each group contiguous.
pub trait WeightLayout {
    /// Name for errors and listings.
    const NAME: &'static str;
    /// Rows that are packed together; the last group of a matrix is filled with zero rows.
    const GROUP_ROWS: usize;
    /// Columns of a block of the file.
    const BLOCK_COLUMNS: usize = TILE_COLUMNS;
    /// Bytes of a block, in the file and here.
    const BLOCK_BYTES: usize;
    /// Bytes of 256 columns of a row.
    const ROW_BYTES: usize = Self::BLOCK_BYTES * (TILE_COLUMNS / Self::BLOCK_COLUMNS);

    /// Writes block `b` of the group's row `row` into `group`, which holds `tiles` times 256 columns a row.
    fn put_block(group: &mut [u8], tiles: usize, row: usize, b: usize, block: &[u8]);

    /// The inverse of [`put_block`](Self::put_block).
    fn get_block(group: &[u8], tiles: usize, row: usize, b: usize, block: &mut [u8]);
}

/// A matrix shape: `rows` × `columns` weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Outputs of the matrix.
    pub rows: usize,
    /// Inputs of the matrix; a multiple of the type's block.
    pub columns: usize,
}

impl Shape {
    /// Tiles of 256 columns in a row, the last one possibly filled with zeros.
    pub const fn tiles(self) -> usize {
        self.columns.div_ceil(TILE_COLUMNS)
    }

    /// Blocks of `L`'s type in a row.
    pub const fn blocks<L: WeightLayout>(self) -> usize {
        self.columns / L::BLOCK_COLUMNS
    }

    /// Row groups of layout `L`, the last one possibly filled with zero rows.
    pub const fn groups<L: WeightLayout>(self) -> usize {
        self.rows.div_ceil(L::GROUP_ROWS)
    }

    /// Bytes of one row group of layout `L`.
    pub const fn group_bytes<L: WeightLayout>(self) -> usize {
        L::GROUP_ROWS * self.tiles() * L::ROW_BYTES
    }

    /// Bytes of the matrix in the file.
    pub const fn file_bytes<L: WeightLayout>(self) -> usize {
        self.rows * self.blocks::<L>() * L::BLOCK_BYTES
    }

    /// Bytes of the packed matrix.
    pub const fn packed_bytes<L: WeightLayout>(self) -> usize {
        self.groups::<L>() * self.group_bytes::<L>()
    }
}

/// Why a matrix could not be packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The row length is no multiple of the type's block.
    Columns {
        /// The layout asked for.
        layout: &'static str,
        /// The row length found.
        columns: usize,
        /// Columns of a block.
        of: usize,
    },
    /// A buffer has the wrong size.
    Length {
        /// The layout asked for.
        layout: &'static str,
        /// Which buffer.
        buffer: &'static str,
        /// Bytes it must have.
        expected: usize,
        /// Bytes it has.
        found: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Columns { layout, columns, of } => {
                write!(
                    f,
                    "layout {layout}: rows of {columns} values cannot be packed, the length must be a positive multiple of {of}"
                )
            }
            Self::Length {
                layout,
                buffer,
                expected,
                found,
            } => {
                write!(
                    f,
                    "layout {layout}: the {buffer} buffer has {found} bytes, {expected} are needed"
                )
            }
        }
    }
}

impl core::error::Error for LayoutError {}

/// Packs row group `index` of the matrix `file` (rows as in the file) into `group`.
///
/// # Errors
/// When the shape has no whole blocks, or a buffer's length does not match the shape.
pub fn pack_group<L: WeightLayout>(
    shape: Shape,
    file: &[u8],
    index: usize,
    group: &mut [u8],
) -> Result<(), LayoutError> {
    check::<L>(shape, "file", shape.file_bytes::<L>(), file.len())?;
    check::<L>(shape, "group", shape.group_bytes::<L>(), group.len())?;
    let (blocks, zero) = (shape.blocks::<L>(), [0u8; TILE_COLUMNS]);
    if !shape.columns.is_multiple_of(TILE_COLUMNS) {
        group.fill(0);
    }
    for row in 0..L::GROUP_ROWS {
        for b in 0..blocks {
            let at = ((index * L::GROUP_ROWS + row) * blocks + b) * L::BLOCK_BYTES;
            let block = file.get(at..at + L::BLOCK_BYTES).unwrap_or(&zero[..L::BLOCK_BYTES]);
            L::put_block(group, shape.tiles(), row, b, block);
        }
    }
    Ok(())
}

/// Packs a whole matrix: `file` as in the file, `packed` of [`Shape::packed_bytes`].
///
/// # Errors
/// As [`pack_group`].
pub fn pack<L: WeightLayout>(shape: Shape, file: &[u8], packed: &mut [u8]) -> Result<(), LayoutError> {
    check::<L>(shape, "packed", shape.packed_bytes::<L>(), packed.len())?;
    for (index, group) in packed.chunks_exact_mut(shape.group_bytes::<L>()).enumerate() {
        pack_group::<L>(shape, file, index, group)?;
    }
    Ok(())
}

/// The inverse of [`pack`]; zero rows past the end are dropped.
///
/// # Errors
/// As [`pack_group`].
pub fn unpack<L: WeightLayout>(shape: Shape, packed: &[u8], file: &mut [u8]) -> Result<(), LayoutError> {
    check::<L>(shape, "packed", shape.packed_bytes::<L>(), packed.len())?;
    check::<L>(shape, "file", shape.file_bytes::<L>(), file.len())?;
    let (blocks, group_bytes) = (shape.blocks::<L>(), shape.group_bytes::<L>());
    for (i, block) in file.chunks_exact_mut(L::BLOCK_BYTES).enumerate() {
        let (row, b) = (i / blocks, i % blocks);
        let group = &packed[row / L::GROUP_ROWS * group_bytes..][..group_bytes];
        L::get_block(group, shape.tiles(), row % L::GROUP_ROWS, b, block);
    }
    Ok(())
}

fn check<L: WeightLayout>(
    shape: Shape,
    buffer: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), LayoutError> {
    if shape.columns == 0 || !shape.columns.is_multiple_of(L::BLOCK_COLUMNS) {
        return Err(LayoutError::Columns {
            layout: L::NAME,
            columns: shape.columns,
            of: L::BLOCK_COLUMNS,
        });
    }
    if expected != found {
        return Err(LayoutError::Length {
            layout: L::NAME,
            buffer,
            expected,
            found,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
