//! MXFP4: 32 E2M1 values and one power of two. 17 bytes, not aligned.

use super::piece::{Cursor, Piece, Pieces};
use super::{Format, map, table, u32_at_any};
use crate::tile::codes::power_of_two;
use sparkinfer_gguf::blocks::e8m0_half;

/// 4-bit floats with a common exponent, in blocks of 32.
pub struct Mxfp4;

impl Format for Mxfp4 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 17;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let d = e8m0_half(block.read());
            let (at, shift) = (1 + 8 * (k & 1), 4 * (k >> 1));
            let four = |i: u32| u32_at_any(block, at + i) >> shift & 0x0f0f_0f0f;
            map(table::look_up(table::FP4, [four(0), four(4)]), |t| d * t)
        }
    }
}

impl Pieces for Mxfp4 {
    const MASK: u32 = 31;
    const CLEAN: bool = true;
    const ALTERNATE: bool = true;

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, _) = Self::block_of(row, piece);
        let (d, q) = (power_of_two(block.byte()), block.past(1).words_anywhere());
        Piece {
            words: table::halves(q, table::FP4_BYTES.resident()),
            scales: [[d, -table::FP4_RAISED * d]; 4],
        }
    }
}
