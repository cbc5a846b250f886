//! Q5_0: 32 nibbles with a fifth bit each and one f16 scale, `w = d·(q − 16)`. 22 bytes, aligned to 2.

use super::piece::{Cursor, Piece, Pieces, halves_with};
use super::{Format, bytes, half_split, map, u16_at, u32_at_even};
use crate::num::half;

/// 5-bit weights in blocks of 32.
pub struct Q5_0;

impl Format for Q5_0 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 22;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let d = half(u16_at(block, 0));
            let fifth = half_split::fifth_bits(u32_at_even(block, 2), k);
            let [low, high] = half_split::nibbles(block, 6, k);
            map(bytes(low | fifth[0], high | fifth[1]), |q| d * (q - 16.0))
        }
    }
}

impl Pieces for Q5_0 {
    const MASK: u32 = 31;
    const CLEAN: bool = true;

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, _) = Self::block_of(row, piece);
        let d = block.half();
        let [fifth, q0, q1, q2, q3] = block.past(2).words_anywhere();
        let fifth = |k: u32| half_split::fifth_bits(fifth, k);
        Piece {
            words: halves_with([q0, q1, q2, q3], [fifth(0), fifth(1), fifth(2), fifth(3)]),
            scales: [[d, -16.0 * d]; 4],
        }
    }
}
