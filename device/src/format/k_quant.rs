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

/// Factor and offset of sub-blocks `2·pair` and `2·pair + 1`, two runs each, from the header's words. What the 6-bit scales
/// of neighbours are made of lies in neighbouring bytes.
#[inline(always)]
pub(super) fn scales(head: [u32; 4], pair: u32) -> [[f32; 2]; 4] {
    let (d, dmin) = (half(head[0] & 0xffff), -half(head[0] >> 16));
    let shift = 16 * (pair & 1);
    let (a, b, c) = (head[1] >> shift, head[2] >> shift, head[3] >> shift);
    // Arithmetic, not a branch: lanes differ.
    let late = (pair / 2).wrapping_neg();
    let choose = |early: u32, other: u32| early & !late | other & late;
    let scales = choose(a & 0x3f3f, c & 0x0f0f | a >> 2 & 0x3030);
    let mins = choose(b & 0x3f3f, c >> 4 & 0x0f0f | b >> 2 & 0x3030);
    let of = |shift: u32| [d * (scales >> shift & 255) as f32, dmin * (mins >> shift & 255) as f32];
    let (first, second) = (of(0), of(8));
    [first, first, second, second]
}
