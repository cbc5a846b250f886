//! Q6_K: 256 6-bit weights in sixteen sub-blocks, `w = d·scale·(q − 32)`. 210 bytes, aligned to 2.

use super::cursor::Cursor;
use super::fragment::{Fragments, Term};
use super::{Format, bytes, map, u16_at, u32_at_even};
use crate::num::half;
use cuda_std::prelude::*;

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

/// What a lane needs of a block: of both halves of its 256 columns, and of both halves of a product's 32.
#[derive(Clone, Copy)]
pub struct Part {
    /// Of columns 0 to 31, whose high nibbles are 64 to 95, and of 32 to 63.
    low: [[[u32; 2]; 2]; 2],
    high: [[u32; 2]; 2],
    scales: [i32; 8],
    d: f32,
}

impl Fragments for Q6K {
    const STEPS: usize = 8;
    const TERM: Term = Term::Offset;
    const WHOLE: bool = true;
    type Part = Part;

    #[inline(always)]
    fn offset(_step: u32, _half: u32) -> i32 {
        32
    }

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        let (mut low, mut high, mut scales) = ([[[0; 2]; 2]; 2], [[0; 2]; 2], [0; 8]);
        unroll!(for I in 0..8 {
            low[I / 4][I / 2 % 2][I % 2] = block.past(16 * I as u32 + 4 * t).word_even();
            scales[I] = block.past(192 + 2 * I as u32 + t / 2).signed_byte();
        });
        unroll!(for I in 0..4 {
            high[I / 2][I % 2] = block.past(128 + 16 * I as u32 + 4 * t).word_even();
        });
        let d = block.past(208).half();
        Part { low, high, scales, d }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        let (low, high) = (part.low[STEP / 4][STEP % 2], part.high[STEP / 4]);
        let byte = |i: usize| {
            let nibbles = if STEP % 4 < 2 { low[i] } else { low[i] >> 4 };
            let bits = match STEP % 4 {
                0 => high[i] << 4,
                1 => high[i] << 2,
                2 => high[i],
                _ => high[i] >> 2,
            };
            nibbles & 0x0f0f_0f0f | bits & 0x3030_3030
        };
        [byte(0), byte(1)]
    }

    /// Eight steps of at most 16·32·128, times 128.
    #[inline(always)]
    fn factor<const STEP: usize>(part: &Part) -> i32 {
        part.scales[STEP]
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [part.d, 0.0]
    }
}
