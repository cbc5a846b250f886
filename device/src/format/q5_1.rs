//! Q5_1: 32 nibbles with a fifth bit each, f16 scale and offset, `w = d·q + m`. 24 bytes, aligned to 8.

use super::piece::{Cursor, Piece, Pieces, halves_with};
use super::{Format, bytes, half_split, map, u16_at, u32_at};
use crate::num::half;

/// 5-bit weights with an offset, in blocks of 32.
pub struct Q5_1;

impl Format for Q5_1 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 24;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (d, m) = (half(u16_at(block, 0)), half(u16_at(block, 2)));
            let fifth = half_split::fifth_bits(u32_at(block, 4), k);
            let [low, high] = half_split::nibbles(block, 8, k);
            map(bytes(low | fifth[0], high | fifth[1]), |q| d * q + m)
        }
    }
}

impl Pieces for Q5_1 {
    const MASK: u32 = 31;
    const CLEAN: bool = true;

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, _) = Self::block_of(row, piece);
        let [fifth, q0, q1, q2, q3] = block.past(4).words();
        let fifth = |k: u32| half_split::fifth_bits(fifth, k);
        Piece {
            words: halves_with([q0, q1, q2, q3], [fifth(0), fifth(1), fifth(2), fifth(3)]),
            scales: [[block.half(), block.past(2).half()]; 4],
        }
    }
}
