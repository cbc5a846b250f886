//! Q2_K and Q3_K as tensor-core tiles.
//!
//! A tile is 16 rows × 256 columns in as many bytes as in the file. A scale covers 16 columns, so the sub-blocks lie in
//! accumulators and column pairs as in [`Q6KTile`](super::Q6KTile): accumulator a = 0…3 takes two products u = 0, 1.
//!
//! Q2_K:
//!
//! | bytes | content |
//! |---|---|
//! | `512·s + 16·lane`, s = 0, 1 | two bits: field f = 2·(a mod 2) + u in bits 2f, 2f+1 of each byte, for a = 2s, 2s+1 |
//! | `1024 + 8·lane` | scales (low nibble) and minimums of accumulators 0…3: 4 bytes of row g, 4 of row g + 8 |
//! | `1280 + 8·g` | d, dmin of row g, then of row g + 8 |
//!
//! Q3_K, whose values are the two bits and 4 where the third bit is set:
//!
//! | bytes | content |
//! |---|---|
//! | `512·a + 16·lane`, a = 0…2 | values of accumulator a: of u = 0 in bits 0…2 of each byte, of u = 1 in bits 3…5 |
//! | | bits 6, 7: for a = 0, 1 the upper two bits of accumulator 3's values of u = a, for a = 2 their lowest bits, of u = 0 and of u = 1 |
//! | `1536 + 4·lane` | low 4 bits of the scales of accumulators 0…3: a nibble of row g, one of row g + 8 |
//! | `1664 + 2·lane` | their high 2 bits, byte a mod 2: of row g in bits 4, 5 (a = 0, 1) or 6, 7 (a = 2, 3), of row g + 8 in bits 0, 1 or 2, 3 |
//! | `1728 + 4·g` | d of rows g and g + 8 |

use super::bytes::{set_word, word};
use super::q6k_tile::{each_register, sub_block};
use super::{TILE_ROWS, WeightLayout};

/// Tiles of Q2_K: see the table at the head of this file.
pub struct Q2KTile;
/// Tiles of Q3_K: see the table at the head of this file.
pub struct Q3KTile;

impl Q2KTile {
    /// Bytes of one tile.
    pub const TILE_BYTES: usize = TILE_ROWS * 84;
    /// Offset of the scales and minimums in a tile.
    pub const SCALES: usize = 1024;
    /// Offset of the row scales d and dmin in a tile.
    pub const ROW_SCALES: usize = 1280;

    fn scale_at(row: usize, a: usize, t: usize) -> usize {
        Self::SCALES + 8 * (4 * (row & 7) + t) + 4 * (row >> 3) + a
    }

    fn row_scales_at(row: usize) -> usize {
        Self::ROW_SCALES + 8 * (row & 7) + 4 * (row >> 3)
    }
}

impl Q3KTile {
    /// Bytes of one tile.
    pub const TILE_BYTES: usize = TILE_ROWS * 110;
    /// Offset of the scales' low bits in a tile.
    pub const LOW_SCALES: usize = 1536;
    /// Offset of the scales' high bits in a tile.
    pub const HIGH_SCALES: usize = 1664;
    /// Offset of the row scales d in a tile.
    pub const ROW_SCALES: usize = 1728;

    fn row_scale_at(row: usize) -> usize {
        Self::ROW_SCALES + 4 * (row & 7) + 2 * (row >> 3)
    }

    /// Byte offset and shift of the low bits of the scale of accumulator `a` and column pair `t`.
    fn low_scale(row: usize, a: usize, t: usize) -> (usize, usize) {
        (Self::LOW_SCALES + 4 * (4 * (row & 7) + t) + a, 4 * (row >> 3))
    }

    /// Byte offset and shift of its high bits.
    fn high_scale(row: usize, a: usize, t: usize) -> (usize, usize) {
        let shift = if row < 8 { 4 } else { 0 };
        (
            Self::HIGH_SCALES + 2 * (4 * (row & 7) + t) + (a & 1),
            shift + 2 * (a >> 1),
        )
    }
}

/// Byte offset and shift, behind the start of a block's two bits, of columns `column` … +3.
fn two_bits(column: usize) -> (usize, usize) {
    (32 * (column / 128) + column % 32, 2 * (column / 32 % 4))
}

/// Sets the bits that `mask` has in each byte, `shift` further up.
fn set_field(bytes: &mut [u8], at: usize, shift: usize, mask: u32, four: u32) {
    let kept = word(bytes, at) & !(mask << shift);
    set_word(bytes, at, kept | four << shift);
}

const THREE: u32 = 0x0707_0707;
const TWO: u32 = 0x0303_0303;
const ONE: u32 = 0x0101_0101;

/// Moves the two bits of all columns of `row` into a tile; `bits` begins with the block's.
fn put_two_bits(tile: &mut [u8], row: usize, bits: &[u8]) {
    each_register(row, |a, u, at, column| {
        let (from, shift) = two_bits(column);
        let four = word(bits, from) >> shift & TWO;
        set_field(tile, 512 * (a >> 1) + at, 2 * (2 * (a & 1) + u), TWO, four);
    });
}

/// The inverse of [`put_two_bits`].
fn get_two_bits(tile: &[u8], row: usize, bits: &mut [u8]) {
    each_register(row, |a, u, at, column| {
        let (to, shift) = two_bits(column);
        let four = word(tile, 512 * (a >> 1) + at) >> (2 * (2 * (a & 1) + u)) & TWO;
        set_field(bits, to, shift, TWO, four);
    });
}

/// Sets four values of Q3_K, one a byte, of product `u` of accumulator `a`.
fn put_values(tile: &mut [u8], (a, u): (usize, usize), at: usize, four: u32) {
    if a < 3 {
        set_field(tile, 512 * a + at, 3 * u, THREE, four);
    } else {
        set_field(tile, 512 * u + at, 6, TWO, four >> 1 & TWO);
        set_field(tile, 1024 + at, 6 + u, ONE, four & ONE);
    }
}

/// The inverse of [`put_values`].
fn values(tile: &[u8], (a, u): (usize, usize), at: usize) -> u32 {
    if a < 3 {
        word(tile, 512 * a + at) >> (3 * u) & THREE
    } else {
        (word(tile, 512 * u + at) >> 6 & TWO) << 1 | word(tile, 1024 + at) >> (6 + u) & ONE
    }
}

/// Calls `f(a, t)` for all accumulators and column pairs.
fn each_sub_block(mut f: impl FnMut(usize, usize)) {
    (0..16).for_each(|i| f(i / 4, i % 4));
}

impl WeightLayout for Q2KTile {
    const NAME: &'static str = "Q2_K tile";
    const GROUP_ROWS: usize = TILE_ROWS;
    const BLOCK_BYTES: usize = 84;

    fn put_block(group: &mut [u8], _tiles: usize, row: usize, b: usize, block: &[u8]) {
        let tile = &mut group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        put_two_bits(tile, row, &block[16..80]);
        each_sub_block(|a, t| tile[Self::scale_at(row, a, t)] = block[sub_block(a, t)]);
        tile[Self::row_scales_at(row)..][..4].copy_from_slice(&block[80..84]);
    }

    fn get_block(group: &[u8], _tiles: usize, row: usize, b: usize, block: &mut [u8]) {
        let tile = &group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        get_two_bits(tile, row, &mut block[16..80]);
        each_sub_block(|a, t| block[sub_block(a, t)] = tile[Self::scale_at(row, a, t)]);
        block[80..84].copy_from_slice(&tile[Self::row_scales_at(row)..][..4]);
    }
}

/// Offsets and shifts of the low four and the high two bits of scale `k` of a Q3_K block.
fn q3_scale(k: usize) -> [(usize, usize); 2] {
    [(96 + k % 8, 4 * (k / 8)), (104 + k % 4, 2 * (k / 4))]
}

/// Moves `mask` bits from one place to another, which keeps its other bits.
fn move_bits(to: &mut [u8], (at, shift): (usize, usize), mask: u8, from: &[u8], (source, right): (usize, usize)) {
    to[at] = to[at] & !(mask << shift) | (from[source] >> right & mask) << shift;
}

impl WeightLayout for Q3KTile {
    const NAME: &'static str = "Q3_K tile";
    const GROUP_ROWS: usize = TILE_ROWS;
    const BLOCK_BYTES: usize = 110;

    fn put_block(group: &mut [u8], _tiles: usize, row: usize, b: usize, block: &[u8]) {
        let tile = &mut group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        each_register(row, |a, u, at, column| {
            let (from, shift) = two_bits(column);
            let third = word(block, column % 32) >> (column / 32) & ONE;
            put_values(tile, (a, u), at, word(&block[32..], from) >> shift & TWO | third << 2);
        });
        each_sub_block(|a, t| {
            let [low, high] = q3_scale(sub_block(a, t));
            move_bits(tile, Self::low_scale(row, a, t), 15, block, low);
            move_bits(tile, Self::high_scale(row, a, t), 3, block, high);
        });
        tile[Self::row_scale_at(row)..][..2].copy_from_slice(&block[108..110]);
    }

    fn get_block(group: &[u8], _tiles: usize, row: usize, b: usize, block: &mut [u8]) {
        let tile = &group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        each_register(row, |a, u, at, column| {
            let (to, shift) = two_bits(column);
            let values = values(tile, (a, u), at);
            set_field(&mut block[32..], to, shift, TWO, values & TWO);
            set_field(block, column % 32, column / 32, ONE, values >> 2 & ONE);
        });
        each_sub_block(|a, t| {
            let [low, high] = q3_scale(sub_block(a, t));
            move_bits(block, low, 15, tile, Self::low_scale(row, a, t));
            move_bits(block, high, 3, tile, Self::high_scale(row, a, t));
        });
        block[108..110].copy_from_slice(&tile[Self::row_scale_at(row)..][..2]);
    }
}
