//! IQ4_NL: 32 nibbles that index a table of steps, and one f16 scale, `w = d·T[q]`. 18 bytes, aligned to 2.

use super::piece::{Cursor, Piece, Pieces};
use super::{Format, half_split, map, table, u16_at};
use crate::num::half;

/// 4-bit non-linear weights in blocks of 32.
pub struct Iq4Nl;

impl Format for Iq4Nl {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 18;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let d = half(u16_at(block, 0));
            map(table::look_up(table::IQ4, half_split::nibbles(block, 2, k)), |t| d * t)
        }
    }
}

impl Pieces for Iq4Nl {
    const MASK: u32 = 255;
    const CLEAN: bool = true;
    const ALTERNATE: bool = true;

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, _) = Self::block_of(row, piece);
        let (d, q) = (block.half(), block.past(2).words_anywhere());
        Piece {
            words: table::halves(q, table::IQ4_BYTES.resident()),
            scales: [[d, -table::IQ4_RAISED * d]; 4],
        }
    }
}
