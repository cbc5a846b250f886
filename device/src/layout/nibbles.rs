//! The parts that the tiles of 4- and 5-bit types share.
//!
//! Lane `(g, t)` = `(lane / 4, lane % 4)` holds, of each sub-block of 32 columns, four words: rows g and g + 8, columns
//! 4t … 4t+3 and 16+4t … 16+4t+3. Two neighbouring sub-blocks share a vector of 512 bytes, the even one in the low
//! nibbles; the vectors begin the tile. A fifth bit lies in a vector of its own, bit `sub` of each byte.

use super::bytes::{set_word, word};

/// Bytes of the nibbles of a tile.
pub(super) const NIBBLES: usize = 2048;
/// Bytes of the fifth bits of a tile.
pub(super) const FIFTH: usize = 512;

/// Offset within a vector of the word with columns 16·half + 4t … +3 of a sub-block of `row`.
pub(super) fn word_at(row: usize, half: usize, t: usize) -> usize {
    16 * (4 * (row & 7) + t) + 4 * (2 * half + (row >> 3))
}

/// Calls `f(half, t)` for the eight words of a sub-block of 32 columns.
pub(super) fn each_word(mut f: impl FnMut(usize, usize)) {
    for i in 0..8 {
        f(i / 4, i % 4);
    }
}

/// Sets four nibbles, one a byte of `four`.
pub(super) fn set_nibbles(tile: &mut [u8], row: usize, sub: usize, (half, t): (usize, usize), four: u32) {
    let (at, shift) = (512 * (sub / 2) + word_at(row, half, t), 4 * (sub & 1));
    let kept = word(tile, at) & (0xf0f0_f0f0 >> shift);
    set_word(tile, at, kept | four << shift);
}

/// The inverse of [`set_nibbles`].
pub(super) fn nibbles(tile: &[u8], row: usize, sub: usize, (half, t): (usize, usize)) -> u32 {
    word(tile, 512 * (sub / 2) + word_at(row, half, t)) >> (4 * (sub & 1)) & 0x0f0f_0f0f
}

/// Sets four fifth bits, bit 0 of each byte of `four`; `fifth` is the tile's vector of them.
pub(super) fn set_fifth(fifth: &mut [u8], row: usize, sub: usize, (half, t): (usize, usize), four: u32) {
    let at = word_at(row, half, t);
    let kept = word(fifth, at) & !(0x0101_0101 << sub);
    set_word(fifth, at, kept | four << sub);
}

/// The inverse of [`set_fifth`].
pub(super) fn fifth(fifth: &[u8], row: usize, sub: usize, (half, t): (usize, usize)) -> u32 {
    word(fifth, word_at(row, half, t)) >> sub & 0x0101_0101
}

/// Offset, within 256 bytes of f16 of which each lane has four, of sub-block `sub` of `row`: lane (g, t) has sub-blocks
/// t and t + 4 of row g, then of row g + 8.
pub(super) fn scale_at(row: usize, sub: usize) -> usize {
    8 * (4 * (row & 7) + (sub & 3)) + 4 * (row >> 3) + 2 * (sub >> 2)
}
