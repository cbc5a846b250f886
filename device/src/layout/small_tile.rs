//! Q4_0, Q4_1, Q5_0 and Q5_1 as tensor-core tiles.
//!
//! A tile is 16 rows × 256 columns: eight blocks of 32 a row, in as many bytes as in the file. Nibbles and fifth bits lie
//! as [`nibbles`](super::nibbles) says; a row whose length is no multiple of 256 ends with blocks of zeros.
//!
//! | bytes | content |
//! |---|---|
//! | `512·j + 16·lane`, j = 0…3 | nibbles of sub-blocks 2j and 2j + 1 |
//! | then `16·lane` (five bits) | fifth bits |
//! | then `8·lane` | scales d of sub-blocks t and t + 4: two f16 of row g, two of row g + 8 |
//! | then `8·lane` (with an offset) | offsets m in the same order |

use super::bytes::{set_word, word};
use super::nibbles::{FIFTH, NIBBLES, each_word, fifth, nibbles, scale_at, set_fifth, set_nibbles};
use super::{TILE_ROWS, WeightLayout};

/// Tiles of the types with blocks of 32: with a fifth bit or not, with an offset or not.
pub struct SmallTile<const FIVE: bool, const OFFSET: bool>;

/// `w = d·(q − 8)`.
pub type Q4_0Tile = SmallTile<false, false>;
/// `w = d·q + m`.
pub type Q4_1Tile = SmallTile<false, true>;
/// `w = d·(q − 16)`, five bits.
pub type Q5_0Tile = SmallTile<true, false>;
/// `w = d·q + m`, five bits.
pub type Q5_1Tile = SmallTile<true, true>;

impl<const FIVE: bool, const OFFSET: bool> SmallTile<FIVE, OFFSET> {
    /// Bytes of one tile.
    pub const TILE_BYTES: usize = TILE_ROWS * <Self as WeightLayout>::ROW_BYTES;
    /// Offset of the fifth bits in a tile that has them.
    pub const FIFTH: usize = NIBBLES;
    /// Offset of the scales in a tile.
    pub const SCALES: usize = NIBBLES + if FIVE { FIFTH } else { 0 };
    /// Offset of the offsets in a tile that has them.
    pub const OFFSETS: usize = Self::SCALES + 256;

    /// Offsets of the fifth bits and of the nibbles in a block of the file.
    const BITS_IN_BLOCK: usize = if OFFSET { 4 } else { 2 };
    const QUANTS_IN_BLOCK: usize = Self::BITS_IN_BLOCK + if FIVE { 4 } else { 0 };
}

/// The low four bits of `bits`, one a byte.
fn spread(bits: u32) -> u32 {
    (0..4).fold(0, |w, i| w | (bits >> i & 1) << (8 * i))
}

/// The inverse of [`spread`].
fn gathered(bytes: u32) -> u32 {
    (0..4).fold(0, |bits, i| bits | (bytes >> (8 * i) & 1) << i)
}

impl<const FIVE: bool, const OFFSET: bool> WeightLayout for SmallTile<FIVE, OFFSET> {
    const NAME: &'static str = match (FIVE, OFFSET) {
        (false, false) => "Q4_0 tile",
        (false, true) => "Q4_1 tile",
        (true, false) => "Q5_0 tile",
        (true, true) => "Q5_1 tile",
    };
    const GROUP_ROWS: usize = TILE_ROWS;
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = Self::QUANTS_IN_BLOCK + 16;

    fn put_block(group: &mut [u8], _tiles: usize, row: usize, b: usize, block: &[u8]) {
        let (tile, sub) = (&mut group[b / 8 * Self::TILE_BYTES..][..Self::TILE_BYTES], b % 8);
        each_word(|half, t| {
            let four = word(block, Self::QUANTS_IN_BLOCK + 4 * t) >> (4 * half) & 0x0f0f_0f0f;
            set_nibbles(tile, row, sub, (half, t), four);
            if FIVE {
                let bits = spread(word(block, Self::BITS_IN_BLOCK) >> (16 * half + 4 * t));
                set_fifth(&mut tile[Self::FIFTH..], row, sub, (half, t), bits);
            }
        });
        tile[Self::SCALES + scale_at(row, sub)..][..2].copy_from_slice(&block[..2]);
        if OFFSET {
            tile[Self::OFFSETS + scale_at(row, sub)..][..2].copy_from_slice(&block[2..4]);
        }
    }

    fn get_block(group: &[u8], _tiles: usize, row: usize, b: usize, block: &mut [u8]) {
        let (tile, sub) = (&group[b / 8 * Self::TILE_BYTES..][..Self::TILE_BYTES], b % 8);
        block.fill(0);
        each_word(|half, t| {
            let at = Self::QUANTS_IN_BLOCK + 4 * t;
            let both = word(block, at) | nibbles(tile, row, sub, (half, t)) << (4 * half);
            set_word(block, at, both);
            if FIVE {
                let bits = gathered(fifth(&tile[Self::FIFTH..], row, sub, (half, t))) << (16 * half + 4 * t);
                let all = word(block, Self::BITS_IN_BLOCK) | bits;
                set_word(block, Self::BITS_IN_BLOCK, all);
            }
        });
        block[..2].copy_from_slice(&tile[Self::SCALES + scale_at(row, sub)..][..2]);
        if OFFSET {
            block[2..4].copy_from_slice(&tile[Self::OFFSETS + scale_at(row, sub)..][..2]);
        }
    }
}
