//! Q3_K: 256 3-bit weights in sixteen sub-blocks, `w = d·(scale − 32)·(q − 4)` with 6-bit scales; the third bits lie
//! apart. 110 bytes, aligned to 2.

use super::{Format, bytes, map, u16_at, u32_at_even};
use crate::num::half;

/// 3-bit weights in blocks of 256.
pub struct Q3K;

impl Format for Q3K {
    const BLOCK: u32 = 256;
    const BYTES: u32 = 110;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (half_block, quarter, l) = (k / 16, k / 4 % 4, 8 * (k % 4));
            let four = |i: u32| {
                let low = u32_at_even(block, 32 + 32 * half_block + l + i) >> (2 * quarter) & 0x0303_0303;
                low | (u32_at_even(block, l + i) >> (4 * half_block + quarter) & 0x0101_0101) << 2
            };
            let d = half(u16_at(block, 108)) * (scale(block, k / 2) as f32 - 32.0);
            map(bytes(four(0), four(4)), |q| d * (q - 4.0))
        }
    }
}

/// The 6-bit scale of sub-block `j`: a nibble of the first eight bytes, two bits of the last four.
///
/// # Safety
/// `block` points to a whole block.
#[inline(always)]
unsafe fn scale(block: *const u8, j: u32) -> u32 {
    // SAFETY: the caller's.
    let byte = |i: u32| u32::from(unsafe { block.add(96 + i as usize).read() });
    let low = byte(j % 8) >> (4 * (j / 8)) & 15;
    low | (byte(8 + j % 4) >> (2 * (j / 4)) & 3) << 4
}
