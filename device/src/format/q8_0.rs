//! Q8_0: 32 signed bytes and one f16 scale, `w = d·q`. 34 bytes, aligned to 2.

use super::piece::{Cursor, Piece, Pieces};
use super::{Format, map, signed_bytes, u16_at, u32_at_even};
use crate::num::half;

/// 8-bit weights in blocks of 32.
pub struct Q8_0;

impl Format for Q8_0 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 34;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let d = half(u16_at(block, 0));
            let q = signed_bytes(u32_at_even(block, 2 + 8 * k), u32_at_even(block, 6 + 8 * k));
            map(q, |q| d * q)
        }
    }
}

impl Pieces for Q8_0 {
    const MASK: u32 = 255;
    const CLEAN: bool = true;

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, _) = Self::block_of(row, piece);
        let (d, q) = (block.half(), block.past(2).words_anywhere::<8>());
        // Signed bytes, raised by 128.
        let q = q.map(|q| q ^ 0x8080_8080);
        Piece {
            words: [[q[0], q[1]], [q[2], q[3]], [q[4], q[5]], [q[6], q[7]]],
            scales: [[d, -128.0 * d]; 4],
        }
    }
}
