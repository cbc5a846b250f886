//! Q6_K as tensor-core tiles.
//!
//! A tile is 16 rows × 256 columns in 3,360 bytes, as many as in the file. A scale covers 16 columns, so the multiply
//! gives each 16-column sub-block its own column pair of the B operand: accumulator `a` = 0…3 takes two
//! `mma.m16n8k32` (`u` = 0, 1), whose two k-halves (`h` = 0, 1) are the sub-blocks [`sub_block`]`(a, 2u + h)`. Lane
//! `(g, t)` = `(lane / 4, lane % 4)` then ends with sub-block `sub_block(a, t)` of rows g and g + 8. The order of the
//! sub-blocks is chosen so that the activation fragments are those of [`Q4KTile`](super::Q4KTile).
//!
//! | bytes | content |
//! |---|---|
//! | `512·(3s + v) + 16·lane` | the lane's A registers (rows g, g+8 × k-half 0, then 1; 4 columns 4t… each) of value v = 2·(a mod 2) + u = 0, 1, 2, for a = 2s, 2s+1: six bits, the top one inverted, in bits 2…7 of each byte; bits 0, 1 are two bits of value 3, the top ones at v = 0 |
//! | `3072 + 8·lane` | the scales of accumulators 0…3: 4 bytes of row g, 4 of row g+8 |
//! | `3328 + 4·g` | d of rows g and g+8 |
//!
//! With its top bit inverted, the 6-bit value is q − 32 in two's complement; at the top of its byte it is a
//! signed byte 4·(q − 32), which costs the kernel no subtraction, and three of four values no more than a mask.

use super::bytes::{set_word, word};
use super::{TILE_ROWS, WeightLayout};

/// Tiles of Q6_K: see the table at the head of this file.
pub struct Q6KTile;

impl Q6KTile {
    /// Bytes of one tile.
    pub const TILE_BYTES: usize = TILE_ROWS * 210;
    /// Offset of the 8-bit scales in a tile.
    pub const SCALES: usize = 3072;
    /// Offset of the row scales d in a tile.
    pub const ROW_SCALES: usize = 3328;
}

/// The 16-column sub-block of a block that column pair `pair` of accumulator `a` covers.
pub const fn sub_block(a: usize, pair: usize) -> usize {
    8 * (a >> 1) + 2 * pair + (a & 1)
}

/// The low 4 and high 2 bits, one value a byte, of columns `column` … +3 of a Q6_K block.
pub(super) fn six_bits(block: &[u8], column: usize) -> (u32, u32) {
    let (half, quarter, l) = (column / 128, column / 32 % 4, column % 32);
    let low = word(block, 64 * half + 32 * (quarter & 1) + l) >> (4 * (quarter >> 1));
    let high = word(block, 128 + 32 * half + l) >> (2 * quarter);
    (low & 0x0f0f_0f0f, high & 0x0303_0303)
}

/// The inverse of [`six_bits`]: ORs the bits into a zeroed block.
pub(super) fn set_six_bits(block: &mut [u8], column: usize, low: u32, high: u32) {
    let (half, quarter, l) = (column / 128, column / 32 % 4, column % 32);
    let (at_low, at_high) = (64 * half + 32 * (quarter & 1) + l, 128 + 32 * half + l);
    set_word(block, at_low, word(block, at_low) | low << (4 * (quarter >> 1)));
    set_word(block, at_high, word(block, at_high) | high << (2 * quarter));
}

/// Offset within a 512-byte vector of the A register with k-half `half` of `row`, in lane `(row % 8, t)`.
fn register(row: usize, half: usize, t: usize) -> usize {
    16 * (4 * (row & 7) + t) + 4 * (2 * half + (row >> 3))
}

/// Calls `f(a, u, register offset, first column)` for every group of 4 columns of `row`.
pub(super) fn each_register(row: usize, mut f: impl FnMut(usize, usize, usize, usize)) {
    for i in 0..64 {
        let (a, u, half, t) = (i / 16, i / 8 % 2, i / 4 % 2, i % 4);
        f(a, u, register(row, half, t), 16 * sub_block(a, 2 * u + half) + 4 * t);
    }
}

/// Where plane `v` has the register at `at` of accumulators 2s and 2s + 1.
fn plane_at(s: usize, v: usize, at: usize) -> usize {
    512 * (3 * s + v) + at
}

/// Where in a byte bits of value 3 come from: those of plane `v`.
fn piece(v: usize) -> usize {
    4 - 2 * v
}

/// Puts the six bits of four values, one a byte, into zeroed bits or over others.
fn put_value(tile: &mut [u8], (a, u, at): (usize, usize, usize), value: u32) {
    let v = 2 * (a & 1) + u;
    for plane in 0..3 {
        let place = plane_at(a / 2, plane, at);
        let old = word(tile, place);
        if v == plane {
            set_word(tile, place, old & 0x0303_0303 | value << 2);
        } else if v == 3 {
            set_word(tile, place, old & 0xfcfc_fcfc | value >> piece(plane) & 0x0303_0303);
        }
    }
}

/// The inverse of [`put_value`].
fn value(tile: &[u8], (a, u, at): (usize, usize, usize)) -> u32 {
    let (v, plane) = (2 * (a & 1) + u, |v| word(tile, plane_at(a / 2, v, at)));
    match v {
        3 => (0..3).fold(0, |bits, v| bits | (plane(v) & 0x0303_0303) << piece(v)),
        _ => plane(v) >> 2 & 0x3f3f_3f3f,
    }
}

fn scale_at(row: usize, a: usize, t: usize) -> usize {
    Q6KTile::SCALES + 8 * (4 * (row & 7) + t) + 4 * (row >> 3) + a
}

fn row_scale_at(row: usize) -> usize {
    Q6KTile::ROW_SCALES + 4 * (row & 7) + 2 * (row >> 3)
}

impl WeightLayout for Q6KTile {
    const NAME: &'static str = "Q6_K tile";
    const GROUP_ROWS: usize = TILE_ROWS;
    const BLOCK_BYTES: usize = 210;

    fn put_block(group: &mut [u8], _blocks: usize, row: usize, b: usize, block: &[u8]) {
        let tile = &mut group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        each_register(row, |a, u, at, column| {
            let (low, high) = six_bits(block, column);
            put_value(tile, (a, u, at), low | (high ^ 0x0202_0202) << 4);
        });
        for i in 0..16 {
            let (a, t) = (i / 4, i % 4);
            tile[scale_at(row, a, t)] = block[192 + sub_block(a, t)];
        }
        tile[row_scale_at(row)..][..2].copy_from_slice(&block[208..210]);
    }

    fn get_block(group: &[u8], _blocks: usize, row: usize, b: usize, block: &mut [u8]) {
        let tile = &group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        block.fill(0);
        each_register(row, |a, u, at, column| {
            let value = value(tile, (a, u, at));
            set_six_bits(
                block,
                column,
                value & 0x0f0f_0f0f,
                value >> 4 & 0x0303_0303 ^ 0x0202_0202,
            );
        });
        for i in 0..16 {
            let (a, t) = (i / 4, i % 4);
            block[192 + sub_block(a, t)] = tile[scale_at(row, a, t)];
        }
        block[208..210].copy_from_slice(&tile[row_scale_at(row)..][..2]);
    }
}
