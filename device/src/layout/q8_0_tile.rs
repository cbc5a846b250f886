//! Q8_0 as tensor-core tiles.
//!
//! A tile is 16 rows × 256 columns in 4,352 bytes, as many as eight blocks a row have in the file. The bytes are the A
//! operand as it is. A row whose length is no multiple of 256 ends with blocks of zeros.
//!
//! | bytes | content |
//! |---|---|
//! | `512·j + 16·lane`, j = 0…7 | sub-block j: four words, rows g and g + 8 × columns 4t… and 16+4t… |
//! | `4096 + 8·lane` | scales d of sub-blocks t and t + 4: two f16 of row g, two of row g + 8 |

use super::bytes::{set_word, word};
use super::nibbles::{each_word, scale_at, word_at};
use super::{TILE_ROWS, WeightLayout};

/// Tiles of Q8_0: see the table at the head of this file.
pub struct Q8_0Tile;

impl Q8_0Tile {
    /// Bytes of one tile.
    pub const TILE_BYTES: usize = TILE_ROWS * 8 * 34;
    /// Offset of the scales in a tile.
    pub const SCALES: usize = 4096;
}

impl WeightLayout for Q8_0Tile {
    const NAME: &'static str = "Q8_0 tile";
    const GROUP_ROWS: usize = TILE_ROWS;
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 34;

    fn put_block(group: &mut [u8], _tiles: usize, row: usize, b: usize, block: &[u8]) {
        let (tile, sub) = (&mut group[b / 8 * Self::TILE_BYTES..][..Self::TILE_BYTES], b % 8);
        each_word(|half, t| {
            set_word(
                tile,
                512 * sub + word_at(row, half, t),
                word(block, 2 + 16 * half + 4 * t),
            )
        });
        tile[Self::SCALES + scale_at(row, sub)..][..2].copy_from_slice(&block[..2]);
    }

    fn get_block(group: &[u8], _tiles: usize, row: usize, b: usize, block: &mut [u8]) {
        let (tile, sub) = (&group[b / 8 * Self::TILE_BYTES..][..Self::TILE_BYTES], b % 8);
        each_word(|half, t| {
            set_word(
                block,
                2 + 16 * half + 4 * t,
                word(tile, 512 * sub + word_at(row, half, t)),
            )
        });
        block[..2].copy_from_slice(&tile[Self::SCALES + scale_at(row, sub)..][..2]);
    }
}
