//! Q4_0: 32 nibbles and one f16 scale, `w = d·(q − 8)`. 18 bytes, aligned to 2.

use super::piece::{Cursor, Piece, Pieces, halves};
use super::{Format, bytes, half_split, map, u16_at};
use crate::num::half;

/// 4-bit weights in blocks of 32.
pub struct Q4_0;

impl Format for Q4_0 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 18;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let d = half(u16_at(block, 0));
            let [low, high] = half_split::nibbles(block, 2, k);
            map(bytes(low, high), |q| d * (q - 8.0))
        }
    }
}

impl Pieces for Q4_0 {
    const SHIFTS: [u32; 4] = [0, 0, 4, 4];
    const MASK: u32 = 15;
    const ALIKE: usize = 2;

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, _) = Self::block_of(row, piece);
        let d = block.half();
        Piece {
            words: halves(block.past(2).words_anywhere()),
            scales: [[d, -8.0 * d]; 4],
        }
    }
}
