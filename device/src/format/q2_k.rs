//! Q2_K: 256 2-bit weights in sixteen sub-blocks, `w = d·scale·q − dmin·min` with 4-bit scales. 84 bytes, aligned to 4.

use super::{Format, bytes, map, u16_at, u32_at};
use crate::num::half;

/// 2-bit weights in blocks of 256.
pub struct Q2K;

impl Format for Q2K {
    const BLOCK: u32 = 256;
    const BYTES: u32 = 84;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (half_block, quarter, l) = (k / 16, k / 4 % 4, 8 * (k % 4));
            let packed = u32::from(block.add(k as usize / 2).read());
            let scale = half(u16_at(block, 80)) * (packed & 15) as f32;
            let min = half(u16_at(block, 82)) * (packed >> 4) as f32;
            let four = |i: u32| u32_at(block, 16 + 32 * half_block + l + i) >> (2 * quarter) & 0x0303_0303;
            map(bytes(four(0), four(4)), |q| scale * q - min)
        }
    }
}
