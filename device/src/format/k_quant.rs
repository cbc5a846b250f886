//! The 16-byte header that Q4_K and Q5_K share: f16 d and dmin, then a 6-bit scale and minimum for each of eight
//! sub-blocks of 32.

use super::cursor::Cursor;
use super::fragment::byte;
use super::{u16_at, u32_at};
use crate::num::half;
use cuda_std::prelude::*;

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

/// The first column of a lane's four: two products share the 32 bytes of sub-blocks 2·step and 2·step + 1, which are
/// the low and the high nibbles.
#[inline(always)]
pub(super) fn first_column(number: u32, half: u32, t: u32) -> u32 {
    64 * (number / 2) + 32 * half + 16 * (number % 2) + 4 * t
}

/// A lane's words of the block's 128 bytes of nibbles.
#[inline(always)]
pub(super) fn words(nibbles: Cursor, t: u32) -> [[u32; 2]; 4] {
    let mut words = [[0; 2]; 4];
    unroll!(for I in 0..8 {
        words[I / 2][I % 2] = nibbles.past(16 * I as u32 + 4 * t).word();
    });
    words
}

/// What a lane needs of a header.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    d: f32,
    dmin: f32,
    /// Those of the first four sub-blocks, and of the last.
    scales: [u32; 2],
    minima: u32,
    /// 0 or 1: the lane's half.
    half: u32,
}

impl Scales {
    /// Of a block, for lane `t`.
    #[inline(always)]
    pub fn load(block: Cursor, t: u32) -> Self {
        let [factors, a, b, c] = block.vector();
        let late = |nibbles: u32, bits: u32| nibbles & 0x0f0f_0f0f | bits >> 2 & 0x3030_3030;
        Self {
            d: half(factors & 0xffff),
            dmin: -half(factors >> 16),
            scales: [a & 0x3f3f_3f3f, late(c, a)],
            minima: if t == 0 { b & 0x3f3f_3f3f } else { late(c >> 4, b) },
            half: t / 2,
        }
    }

    /// Scale of a step.
    #[inline(always)]
    pub fn of<const STEP: usize>(&self) -> i32 {
        byte(self.scales[STEP / 2], 2 * (STEP as u32 % 2) + self.half)
    }

    /// Minima of four sub-blocks, in the first two lanes.
    #[inline(always)]
    pub fn minima(&self) -> u32 {
        self.minima
    }

    /// The block's factor of scales and of minima.
    #[inline(always)]
    pub fn factors(&self) -> [f32; 2] {
        [self.d, self.dmin]
    }
}
