//! Q6_K: 256 6-bit weights in sixteen sub-blocks, `w = d·scale·(q − 32)`. 210 bytes, aligned to 2.

use super::{Format, bytes, map, u16_at, u32_at_even};
use crate::num::half;

/// 6-bit weights in blocks of 256.
pub struct Q6K;

impl Format for Q6K {
    const BLOCK: u32 = 256;
    const BYTES: u32 = 210;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (half_block, quarter, l) = (k / 16, k / 4 % 4, 8 * (k % 4));
            let four = |i: u32| {
                let low = u32_at_even(block, 64 * half_block + 32 * (quarter & 1) + l + i) >> (4 * (quarter / 2));
                let high = u32_at_even(block, 128 + 32 * half_block + l + i) >> (2 * quarter);
                low & 0x0f0f_0f0f | (high & 0x0303_0303) << 4
            };
            let scale = f32::from(block.add(192 + k as usize / 2).cast::<i8>().read());
            let d = half(u16_at(block, 208));
            map(bytes(four(0), four(4)), |q| d * scale * (q - 32.0))
        }
    }
}
