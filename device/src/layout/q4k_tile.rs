//! Q4_K as tensor-core tiles.
//!
//! A tile is 16 rows × 256 columns in 2,304 bytes, as many as in the file. Lane `(g, t)` = `(lane / 4, lane % 4)` of the
//! warp that multiplies it holds rows `g` and `g + 8`, as `mma.m16n8k32` wants its A operand:
//!
//! | bytes | content |
//! |---|---|
//! | `512·j + 16·lane`, j = 0…3 | the lane's 4 words of columns 64j…64j+63: rows g, g+8 × columns 4t…, then 16+4t…; low nibbles are sub-block 2j, high nibbles 2j+1 |
//! | `2048 + 8·lane` | two words, one per row: scales of sub-blocks t, t+4 (bits 0, 6), minimums (12, 18), and in bits 24…31 the low (word 0) and high (word 1) byte of the t-th of d[g], dmin[g], d[g+8], dmin[g+8] |

use super::bytes::{set_word, word};
use super::nibbles::{NIBBLES, word_at};
use super::{TILE_ROWS, WeightLayout};

/// Tiles of Q4_K: see the table at the head of this file.
pub struct Q4KTile;

impl Q4KTile {
    /// Bytes of one tile.
    pub const TILE_BYTES: usize = TILE_ROWS * 144;
    /// Offset of the headers in a tile.
    pub const HEADERS: usize = NIBBLES;
}

/// Offset in a tile of word `i` of the nibbles of `row`.
fn quant_word(row: usize, i: usize) -> usize {
    512 * (i / 8) + word_at(row, i / 4 % 2, i % 4)
}

/// Offset in a tile of the header word of `row` in lane `(row % 8, t)`.
fn header_word(row: usize, t: usize) -> usize {
    Q4KTile::HEADERS + 8 * (4 * (row & 7) + t) + 4 * (row >> 3)
}

/// Offset in a tile of the low byte of `row`'s d (`which` = 0) or dmin (1); the high byte lies 4 further.
fn scale_byte(row: usize, which: usize) -> usize {
    Q4KTile::HEADERS + 8 * (4 * (row & 7) + 2 * (row >> 3) + which) + 3
}

/// Scale and minimum of sub-block `j`, from the 12 packed bytes of a K-quant header.
pub(super) fn scale_min(s: &[u8], j: usize) -> (u32, u32) {
    let at = |i: usize| u32::from(s[i]);
    if j < 4 {
        (at(j) & 63, at(j + 4) & 63)
    } else {
        (at(j + 4) & 15 | at(j - 4) >> 6 << 4, at(j + 4) >> 4 | at(j) >> 6 << 4)
    }
}

/// The inverse of [`scale_min`]: ORs the values into 12 zeroed bytes.
fn set_scale_min(s: &mut [u8], j: usize, scale: u32, min: u32) {
    let (scale, min) = (scale as u8, min as u8);
    if j < 4 {
        s[j] |= scale;
        s[j + 4] |= min;
    } else {
        s[j + 4] |= scale & 15 | min << 4;
        s[j - 4] |= scale >> 4 << 6;
        s[j] |= min >> 4 << 6;
    }
}

/// Writes the 16-byte header of a block of `row`: what Q4_K and Q5_K have in common, at the same place in both tiles.
pub(super) fn put_header(tile: &mut [u8], row: usize, header: &[u8]) {
    for t in 0..4 {
        let ((s0, m0), (s1, m1)) = (scale_min(&header[4..], t), scale_min(&header[4..], t + 4));
        let bits = s0 | s1 << 6 | m0 << 12 | m1 << 18;
        tile[header_word(row, t)..][..3].copy_from_slice(&bits.to_le_bytes()[..3]);
    }
    for which in 0..2 {
        tile[scale_byte(row, which)] = header[2 * which];
        tile[scale_byte(row, which) + 4] = header[2 * which + 1];
    }
}

/// The inverse of [`put_header`].
pub(super) fn get_header(tile: &[u8], row: usize, header: &mut [u8]) {
    header.fill(0);
    for t in 0..4 {
        let bits = word(tile, header_word(row, t));
        set_scale_min(&mut header[4..], t, bits & 63, (bits >> 12) & 63);
        set_scale_min(&mut header[4..], t + 4, (bits >> 6) & 63, (bits >> 18) & 63);
    }
    for which in 0..2 {
        header[2 * which] = tile[scale_byte(row, which)];
        header[2 * which + 1] = tile[scale_byte(row, which) + 4];
    }
}

/// Writes the 128 bytes of nibbles of a block of `row`: a vector keeps the file's pairing of sub-blocks.
pub(super) fn put_quants(tile: &mut [u8], row: usize, quants: &[u8]) {
    for i in 0..32 {
        set_word(tile, quant_word(row, i), word(quants, 4 * i));
    }
}

/// The inverse of [`put_quants`].
pub(super) fn get_quants(tile: &[u8], row: usize, quants: &mut [u8]) {
    for i in 0..32 {
        set_word(quants, 4 * i, word(tile, quant_word(row, i)));
    }
}

impl WeightLayout for Q4KTile {
    const NAME: &'static str = "Q4_K tile";
    const GROUP_ROWS: usize = TILE_ROWS;
    const BLOCK_BYTES: usize = 144;

    fn put_block(group: &mut [u8], _tiles: usize, row: usize, b: usize, block: &[u8]) {
        let tile = &mut group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        put_header(tile, row, &block[..16]);
        put_quants(tile, row, &block[16..]);
    }

    fn get_block(group: &[u8], _tiles: usize, row: usize, b: usize, block: &mut [u8]) {
        let tile = &group[b * Self::TILE_BYTES..][..Self::TILE_BYTES];
        get_header(tile, row, &mut block[..16]);
        get_quants(tile, row, &mut block[16..]);
    }
}
