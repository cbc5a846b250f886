//! IQ4_NL, MXFP4 and IQ4_XS as tensor-core tiles: codes with one scale for 32 columns.
//!
//! A tile is 16 rows × 256 columns in as many bytes as in the file; codes lie as [`codes`](super::codes) says, those of
//! sub-blocks 2j and 2j + 1 in vector j. A row of IQ4_NL or MXFP4 whose length is no multiple of 256 ends with blocks of
//! zeros.
//!
//! | bytes | content |
//! |---|---|
//! | `512·j + 16·lane`, j = 0…3 | codes |
//! | IQ4_NL: `2048 + 8·lane` | scales d of sub-blocks t and t + 4: two f16 of row g, two of row g + 8 |
//! | MXFP4: `2048 + 4·lane` | exponents of sub-blocks t and t + 4: two bytes of row g, two of row g + 8 |
//! | IQ4_XS: `2048 + 4·lane` | 6-bit scales of sub-blocks t and t + 4 of row g (bits 0, 6), of row g + 8 (12, 18); bits 24…31: the t-th byte of d[g], d[g+8] |

use super::bytes::{set_word, word};
use super::codes::{Place, codes, set_codes};
use super::nibbles::{NIBBLES, each_word, scale_at, word_at};
use super::{TILE_ROWS, WeightLayout};

/// Tiles of IQ4_NL: see the table at the head of this file.
pub struct Iq4NlTile;
/// Tiles of MXFP4: see the table at the head of this file.
pub struct Mxfp4Tile;
/// Tiles of IQ4_XS: see the table at the head of this file.
pub struct Iq4XsTile;

impl Iq4NlTile {
    /// Bytes of one tile.
    pub const TILE_BYTES: usize = TILE_ROWS * 8 * 18;
    /// Offset of the scales in a tile.
    pub const SCALES: usize = NIBBLES;
}

impl Mxfp4Tile {
    /// Bytes of one tile.
    pub const TILE_BYTES: usize = TILE_ROWS * 8 * 17;
    /// Offset of the exponents in a tile.
    pub const EXPONENTS: usize = NIBBLES;

    fn exponent_at(row: usize, sub: usize) -> usize {
        Self::EXPONENTS + scale_at(row, sub) / 2
    }
}

impl Iq4XsTile {
    /// Bytes of one tile.
    pub const TILE_BYTES: usize = TILE_ROWS * 136;
    /// Offset of the headers in a tile.
    pub const HEADERS: usize = NIBBLES;

    /// Offset of the header word of `row` in lane `(row % 8, t)`.
    fn header_at(row: usize, t: usize) -> usize {
        Self::HEADERS + 4 * (4 * (row & 7) + t)
    }

    /// Offset of byte `i` of `row`'s d.
    fn d_at(row: usize, i: usize) -> usize {
        Self::header_at(row, 2 * (row >> 3) + i) + 3
    }
}

fn place(row: usize, sub: usize, (half, t): (usize, usize)) -> Place {
    Place {
        vector: sub / 2,
        upper: sub & 1,
        word: word_at(row, half, t),
    }
}

/// Moves the 16 bytes of a sub-block, nibbles in halves, into a tile.
fn put_codes(tile: &mut [u8], row: usize, sub: usize, halves: &[u8]) {
    each_word(|half, t| {
        let four = word(halves, 4 * t) >> (4 * half) & 0x0f0f_0f0f;
        set_codes(tile, place(row, sub, (half, t)), four);
    });
}

/// The inverse of [`put_codes`].
fn get_codes(tile: &[u8], row: usize, sub: usize, halves: &mut [u8]) {
    halves.fill(0);
    each_word(|half, t| {
        let both = word(halves, 4 * t) | codes(tile, place(row, sub, (half, t))) << (4 * half);
        set_word(halves, 4 * t, both);
    });
}

impl WeightLayout for Iq4NlTile {
    const NAME: &'static str = "IQ4_NL tile";
    const GROUP_ROWS: usize = TILE_ROWS;
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 18;

    fn put_block(group: &mut [u8], _tiles: usize, row: usize, b: usize, block: &[u8]) {
        let (tile, sub) = (&mut group[b / 8 * Self::TILE_BYTES..][..Self::TILE_BYTES], b % 8);
        put_codes(tile, row, sub, &block[2..]);
        tile[Self::SCALES + scale_at(row, sub)..][..2].copy_from_slice(&block[..2]);
    }

    fn get_block(group: &[u8], _tiles: usize, row: usize, b: usize, block: &mut [u8]) {
        let (tile, sub) = (&group[b / 8 * Self::TILE_BYTES..][..Self::TILE_BYTES], b % 8);
        get_codes(tile, row, sub, &mut block[2..]);
        block[..2].copy_from_slice(&tile[Self::SCALES + scale_at(row, sub)..][..2]);
    }
}

impl WeightLayout for Mxfp4Tile {
    const NAME: &'static str = "MXFP4 tile";
    const GROUP_ROWS: usize = TILE_ROWS;
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 17;

    fn put_block(group: &mut [u8], _tiles: usize, row: usize, b: usize, block: &[u8]) {
        let (tile, sub) = (&mut group[b / 8 * Self::TILE_BYTES..][..Self::TILE_BYTES], b % 8);
        put_codes(tile, row, sub, &block[1..]);
        tile[Self::exponent_at(row, sub)] = block[0];
    }

    fn get_block(group: &[u8], _tiles: usize, row: usize, b: usize, block: &mut [u8]) {
        let (tile, sub) = (&group[b / 8 * Self::TILE_BYTES..][..Self::TILE_BYTES], b % 8);
        get_codes(tile, row, sub, &mut block[1..]);
        block[0] = tile[Self::exponent_at(row, sub)];
    }
}

/// The 6-bit scale of sub-block `j` of an IQ4_XS block.
fn six_bit_scale(block: &[u8], j: usize) -> u32 {
    u32::from(block[4 + j / 2] >> (4 * (j & 1)) & 15) | u32::from(block[2 + j / 4] >> (2 * (j & 3)) & 3) << 4
}

/// The inverse of [`six_bit_scale`]: ORs the bits into zeroed bytes.
fn set_six_bit_scale(block: &mut [u8], j: usize, scale: u32) {
    block[4 + j / 2] |= (scale as u8 & 15) << (4 * (j & 1));
    block[2 + j / 4] |= (scale as u8 >> 4) << (2 * (j & 3));
}

impl WeightLayout for Iq4XsTile {
    const NAME: &'static str = "IQ4_XS tile";
    const GROUP_ROWS: usize = TILE_ROWS;
    const BLOCK_BYTES: usize = 136;

    fn put_block(group: &mut [u8], _tiles: usize, row: usize, b: usize, block: &[u8]) {
        let tile = &mut group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        (0..8).for_each(|sub| put_codes(tile, row, sub, &block[8 + 16 * sub..][..16]));
        for t in 0..4 {
            let (at, shift) = (Self::header_at(row, t), 12 * (row >> 3));
            let both = six_bit_scale(block, t) | six_bit_scale(block, t + 4) << 6;
            let kept = word(tile, at) & !(0xfff << shift);
            set_word(tile, at, kept | both << shift);
        }
        (0..2).for_each(|i| tile[Self::d_at(row, i)] = block[i]);
    }

    fn get_block(group: &[u8], _tiles: usize, row: usize, b: usize, block: &mut [u8]) {
        let tile = &group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        block[..8].fill(0);
        (0..8).for_each(|sub| get_codes(tile, row, sub, &mut block[8 + 16 * sub..][..16]));
        for t in 0..4 {
            let both = word(tile, Self::header_at(row, t)) >> (12 * (row >> 3));
            set_six_bit_scale(block, t, both & 63);
            set_six_bit_scale(block, t + 4, both >> 6 & 63);
        }
        (0..2).for_each(|i| block[i] = tile[Self::d_at(row, i)]);
    }
}
