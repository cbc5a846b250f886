//! NVFP4 as tensor-core tiles.
//!
//! A tile is 16 rows × 256 columns in 2,304 bytes, as many as four blocks a row have in the file. A scale covers 16
//! columns, so the sub-blocks lie in accumulators and column pairs as in [`Q6KTile`](super::Q6KTile). A row whose length
//! is no multiple of 256 ends with blocks of zeros.
//!
//! | bytes | content |
//! |---|---|
//! | `512·a + 16·lane` | codes of accumulator a, as [`codes`](super::codes) says: the lower half of a word is u = 0, the upper u = 1 |
//! | `2048 + 8·lane` | the scales of accumulators 0…3: 4 bytes of row g, 4 of row g + 8 |

use super::bytes::{set_word, word};
use super::codes::{Place, codes, set_codes};
use super::nibbles::{NIBBLES, word_at};
use super::{TILE_ROWS, WeightLayout};

/// Columns under one scale.
const GROUP: usize = 16;

/// Tiles of NVFP4: see the table at the head of this file.
pub struct Nvfp4Tile;

impl Nvfp4Tile {
    /// Bytes of one tile.
    pub const TILE_BYTES: usize = TILE_ROWS * 4 * 36;
    /// Offset of the scales in a tile.
    pub const SCALES: usize = NIBBLES;

    fn scale_at(row: usize, (a, pair): (usize, usize)) -> usize {
        Self::SCALES + 8 * (4 * (row & 7) + pair) + 4 * (row >> 3) + a
    }
}

/// Accumulator and column pair of sub-block `k`: the inverse of [`sub_block`](super::q6k_tile::sub_block).
const fn accumulator(k: usize) -> (usize, usize) {
    (2 * (k / 8) + (k & 1), k % 8 / 2)
}

/// Place of columns 4t … 4t+3 of sub-block `k` of `row`.
fn place(row: usize, k: usize, t: usize) -> Place {
    let (a, pair) = accumulator(k);
    Place {
        vector: a,
        upper: pair / 2,
        word: word_at(row, pair & 1, t),
    }
}

/// Byte offset and shift, in a block of the file, of columns 4t … 4t+3 of its group `i`.
fn in_block(i: usize, t: usize) -> (usize, usize) {
    (4 + GROUP / 2 * i + 4 * (t & 1), 4 * (t >> 1))
}

impl WeightLayout for Nvfp4Tile {
    const NAME: &'static str = "NVFP4 tile";
    const GROUP_ROWS: usize = TILE_ROWS;
    const BLOCK_COLUMNS: usize = 64;
    const BLOCK_BYTES: usize = 36;

    fn put_block(group: &mut [u8], _tiles: usize, row: usize, b: usize, block: &[u8]) {
        let tile = &mut group[b / 4 * Self::TILE_BYTES..][..Self::TILE_BYTES];
        for i in 0..4 {
            let k = 4 * (b % 4) + i;
            for t in 0..4 {
                let (at, shift) = in_block(i, t);
                set_codes(tile, place(row, k, t), word(block, at) >> shift & 0x0f0f_0f0f);
            }
            tile[Self::scale_at(row, accumulator(k))] = block[i];
        }
    }

    fn get_block(group: &[u8], _tiles: usize, row: usize, b: usize, block: &mut [u8]) {
        let tile = &group[b / 4 * Self::TILE_BYTES..][..Self::TILE_BYTES];
        block.fill(0);
        for i in 0..4 {
            let k = 4 * (b % 4) + i;
            for t in 0..4 {
                let (at, shift) = in_block(i, t);
                let both = word(block, at) | codes(tile, place(row, k, t)) << shift;
                set_word(block, at, both);
            }
            block[i] = tile[Self::scale_at(row, accumulator(k))];
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sub_blocks_are_those_of_q6_k() {
        for k in 0..16 {
            let (a, pair) = super::accumulator(k);
            assert_eq!(crate::layout::q6k_tile::sub_block(a, pair), k);
        }
    }
}
