//! Q4_1: 32 nibbles, f16 scale and offset, `w = d·q + m`. 20 bytes, aligned to 4.

use super::piece::{Cursor, Piece, Pieces, halves};
use super::{Format, bytes, half_split, map, u16_at};
use crate::num::half;

/// 4-bit weights with an offset, in blocks of 32.
pub struct Q4_1;

impl Format for Q4_1 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 20;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (d, m) = (half(u16_at(block, 0)), half(u16_at(block, 2)));
            let [low, high] = half_split::nibbles(block, 4, k);
            map(bytes(low, high), |q| d * q + m)
        }
    }
}

impl Pieces for Q4_1 {
    const SHIFTS: [u32; 4] = [0, 0, 4, 4];
    const MASK: u32 = 15;
    const ALIKE: usize = 2;

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, _) = Self::block_of(row, piece);
        Piece {
            words: halves(block.past(4).words()),
            scales: [[block.half(), block.past(2).half()]; 4],
        }
    }
}
