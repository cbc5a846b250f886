//! The 16-byte header that Q4_K and Q5_K share: f16 d and dmin, then a 6-bit scale and minimum for each of eight
//! sub-blocks of 32.

use super::{u16_at, u32_at};
use crate::num::half;

/// Scale and minimum of sub-block `j`, each times its f16 factor.
///
/// # Safety
/// `block` points to a whole header, aligned to 4 bytes.
#[inline(always)]
pub(super) unsafe fn scale_min(block: *const u8, j: u32) -> (f32, f32) {
    // SAFETY: the caller's.
    let (d, dmin, words) = unsafe {
        (
            half(u16_at(block, 0)),
            half(u16_at(block, 2)),
            [u32_at(block, 4), u32_at(block, 8), u32_at(block, 12)],
        )
    };
    let (scale, min) = six_bit_pair(words, j);
    (d * scale as f32, dmin * min as f32)
}

/// The 6-bit scale and minimum of sub-block `j`, from the twelve packed bytes as words.
#[inline(always)]
pub(crate) fn six_bit_pair(words: [u32; 3], j: u32) -> (u32, u32) {
    let shift = 8 * (j & 3);
    let (a, b, c) = (words[0] >> shift, words[1] >> shift, words[2] >> shift);
    if j < 4 {
        (a & 63, b & 63)
    } else {
        (c & 15 | a >> 2 & 0x30, c >> 4 & 15 | b >> 2 & 0x30)
    }
}
