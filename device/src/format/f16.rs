//! F16: IEEE half precision.

use super::{Format, is_wide, u16_at, wide_at};
use crate::num::half;

/// 16-bit floats.
pub struct F16;

impl Format for F16 {
    const BLOCK: u32 = 1;
    const BYTES: u32 = 2;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        if is_wide(row) {
            // SAFETY: the caller's, and the piece is as aligned as its row.
            let [a, b, c, d] = unsafe { wide_at(row, 16 * piece) };
            let (low, high) = (|w: u32| half(w & 0xffff), |w: u32| half(w >> 16));
            return [low(a), high(a), low(b), high(b), low(c), high(c), low(d), high(d)];
        }
        // SAFETY: the caller's; a row of odd length is aligned to 2 bytes only.
        let at = |k: u32| half(unsafe { u16_at(row, 16 * piece + 2 * k) });
        [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)]
    }

    #[inline(always)]
    unsafe fn one(row: *const u8, column: u32) -> f32 {
        // SAFETY: the caller's.
        half(unsafe { u16_at(row, 2 * column) })
    }
}
