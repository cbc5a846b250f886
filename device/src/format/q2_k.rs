//! Q2_K: 256 2-bit weights in sixteen sub-blocks, `w = d·scale·q − dmin·min` with 4-bit scales. 84 bytes, aligned to 4.

use super::cursor::Cursor;
use super::fragment::{Fragments, Term};
use super::{Format, bytes, map, u16_at, u32_at};
use crate::num::half;
use cuda_std::prelude::*;

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

/// What a lane needs of a block: of both halves of its 256 columns, and of both halves of a product's 32.
#[derive(Clone, Copy)]
pub struct Part {
    words: [[u32; 2]; 2],
    /// Two scales in each, from bits 0 and 16 on.
    scales: [u32; 4],
    minima: u32,
    d: f32,
    dmin: f32,
}

impl Fragments for Q2K {
    const STEPS: usize = 8;
    const TERM: Term = Term::Minima;
    const WHOLE: bool = true;
    /// Factors of steps are 2⁶ too large.
    const UNIT: f32 = 1.0 / 64.0;
    type Part = Part;

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        let (mut words, mut scales) = ([[0; 2]; 2], [0; 4]);
        unroll!(for I in 0..4 {
            words[I / 2][I % 2] = block.past(16 + 16 * I as u32 + 4 * t).word();
            scales[I] = block.past(4 * I as u32).word() >> (8 * (t / 2));
        });
        let factors = block.past(80).word();
        Part {
            words,
            scales,
            minima: block.past(4 * t).word() >> 4 & 0x0f0f_0f0f,
            d: half(factors & 0xffff),
            dmin: -half(factors >> 16),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        // The bits stay where they are.
        part.words[STEP / 4].map(|word| word & 0x0303_0303 << (2 * (STEP % 4)))
    }

    /// Eight steps of at most 16·3·128, times 15·2⁶.
    #[inline(always)]
    fn factor<const STEP: usize>(part: &Part) -> i32 {
        // The further up the weights' bits are, the further down the scale's.
        let (packed, up, at) = (part.scales[STEP / 2], 6 - 2 * (STEP % 4), 16 * (STEP % 2));
        let moved = if up > at {
            packed << (up - at)
        } else {
            packed >> (at - up)
        };
        (moved & 15 << up) as i32
    }

    #[inline(always)]
    fn minima(part: &Part) -> u32 {
        part.minima
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [part.d, part.dmin]
    }
}
