//! IQ4_NL: 32 nibbles that index a table of steps, and one f16 scale, `w = d·T[q]`. 18 bytes, aligned to 2.

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
