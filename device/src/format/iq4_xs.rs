//! IQ4_XS: 256 nibbles that index a table of steps, in eight sub-blocks, `w = d·(scale − 32)·T[q]` with 6-bit scales.
//! 136 bytes, aligned to 8.

use super::piece::{Cursor, Piece, Pieces};
use super::{Format, half_split, map, table, u16_at};
use crate::num::half;

/// 4-bit non-linear weights in blocks of 256.
pub struct Iq4Xs;

impl Format for Iq4Xs {
    const BLOCK: u32 = 256;
    const BYTES: u32 = 136;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let j = k / 4;
            let low = u32::from(block.add(4 + j as usize / 2).read()) >> (4 * (j & 1)) & 15;
            let scale = low | (u16_at(block, 2) >> (2 * j) & 3) << 4;
            let d = half(u16_at(block, 0)) * (scale as f32 - 32.0);
            map(
                table::look_up(table::IQ4, half_split::nibbles(block, 8 + 16 * j, k % 4)),
                |t| d * t,
            )
        }
    }
}

impl Pieces for Iq4Xs {
    const MASK: u32 = 255;
    const CLEAN: bool = true;
    const ALTERNATE: bool = true;

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, j) = Self::block_of(row, piece);
        let [head, low] = block.words();
        let scale = low >> (4 * j) & 15 | (head >> (16 + 2 * j) & 3) << 4;
        let d = half(head & 0xffff) * (scale as f32 - 32.0);
        Piece {
            words: table::halves(block.past(8 + 16 * j).words(), table::IQ4_BYTES.resident()),
            scales: [[d, -table::IQ4_RAISED * d]; 4],
        }
    }
}
