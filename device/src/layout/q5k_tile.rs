//! Q5_K as tensor-core tiles: a [`Q4KTile`](super::Q4KTile) and, behind it, 512 bytes of fifth bits: lane's 16 bytes at
//! `16·lane`, bit j of each byte for sub-block j. 2,816 bytes, as many as in the file.

use super::bytes::{set_word, word};
use super::nibbles::{each_word, fifth, set_fifth};
use super::q4k_tile::{get_header, get_quants, put_header, put_quants};
use super::{Q4KTile, TILE_ROWS, WeightLayout};

/// Tiles of Q5_K: see the head of this file.
pub struct Q5KTile;

impl Q5KTile {
    /// Bytes of one tile.
    pub const TILE_BYTES: usize = TILE_ROWS * 176;
    /// Offset of the fifth bits in a tile.
    pub const FIFTH: usize = Q4KTile::TILE_BYTES;
}

impl WeightLayout for Q5KTile {
    const NAME: &'static str = "Q5_K tile";
    const GROUP_ROWS: usize = TILE_ROWS;
    const BLOCK_BYTES: usize = 176;

    fn put_block(group: &mut [u8], _tiles: usize, row: usize, b: usize, block: &[u8]) {
        let tile = &mut group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        put_header(tile, row, &block[..16]);
        put_quants(tile, row, &block[48..]);
        for sub in 0..8 {
            each_word(|half, t| {
                let four = word(block, 16 + 16 * half + 4 * t) >> sub & 0x0101_0101;
                set_fifth(&mut tile[Self::FIFTH..], row, sub, (half, t), four);
            });
        }
    }

    fn get_block(group: &[u8], _tiles: usize, row: usize, b: usize, block: &mut [u8]) {
        let tile = &group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        block.fill(0);
        get_header(tile, row, &mut block[..16]);
        get_quants(tile, row, &mut block[48..]);
        for sub in 0..8 {
            each_word(|half, t| {
                let at = 16 + 16 * half + 4 * t;
                let bits = word(block, at) | fifth(&tile[Self::FIFTH..], row, sub, (half, t)) << sub;
                set_word(block, at, bits);
            });
        }
    }
}
