//! BF16: the upper half of an f32.

use super::{Format, is_wide, u16_at, wide_at};

/// 16-bit brain floats.
pub struct Bf16;

impl Format for Bf16 {
    const BLOCK: u32 = 1;
    const BYTES: u32 = 2;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        if is_wide(row) {
            // SAFETY: the caller's, and the piece is as aligned as its row.
            let [a, b, c, d] = unsafe { wide_at(row, 16 * piece) };
            let (low, high) = (
                |w: u32| f32::from_bits(w << 16),
                |w: u32| f32::from_bits(w & 0xffff_0000),
            );
            return [low(a), high(a), low(b), high(b), low(c), high(c), low(d), high(d)];
        }
        // SAFETY: the caller's; a row of odd length is aligned to 2 bytes only.
        let at = |k: u32| f32::from_bits(unsafe { u16_at(row, 16 * piece + 2 * k) } << 16);
        [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)]
    }

    #[inline(always)]
    unsafe fn one(row: *const u8, column: u32) -> f32 {
        // SAFETY: the caller's.
        f32::from_bits(unsafe { u16_at(row, 2 * column) } << 16)
    }
}
