//! F32: the values themselves.

use super::{Format, is_wide, u32_at, wide_at};

/// 32-bit floats.
pub struct F32;

impl Format for F32 {
    const BLOCK: u32 = 1;
    const BYTES: u32 = 4;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        if is_wide(row) {
            // SAFETY: the caller's, and the piece is as aligned as its row.
            let (low, high) = unsafe { (wide_at(row, 32 * piece), wide_at(row, 32 * piece + 16)) };
            let [a, b, c, d] = low.map(f32::from_bits);
            let [e, f, g, h] = high.map(f32::from_bits);
            return [a, b, c, d, e, f, g, h];
        }
        // SAFETY: the caller's; single floats, because a row of odd length is aligned to 4 bytes only.
        let at = |k: u32| f32::from_bits(unsafe { u32_at(row, 32 * piece + 4 * k) });
        [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)]
    }

    #[inline(always)]
    unsafe fn one(row: *const u8, column: u32) -> f32 {
        // SAFETY: the caller's.
        f32::from_bits(unsafe { u32_at(row, 4 * column) })
    }
}
