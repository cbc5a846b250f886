//! A lane's share of a Q4_K block: 16 bytes of nibbles, low ones of sub-block 2g, high ones of 2g + 1.

use super::{Lane, Share};
use crate::format::six_bit_pair;
use crate::num::half;
use cuda_std::prelude::*;

#[derive(Clone, Copy)]
pub(super) struct Q4KLane {
    quants: [u32; 4],
    header: [u32; 4],
}

impl Q4KLane {
    /// Σ q·x over 16 columns: the nibbles at `shift`.
    #[inline(always)]
    fn sixteen(&self, shift: u32, x: [u32; 4]) -> i32 {
        let mut sum = 0;
        unroll!(for K in 0..4 {
            sum = dot::dp4a_us(self.quants[K] >> shift & 0x0f0f_0f0f, x[K], sum);
        });
        sum
    }
}

impl Lane for Q4KLane {
    const SECOND: u32 = 2;

    #[inline(always)]
    fn first(c: u32) -> u32 {
        4 * (c >> 1) + (c & 1)
    }

    #[inline(always)]
    fn zero() -> Self {
        Self {
            quants: [0; 4],
            header: [0; 4],
        }
    }

    #[inline(always)]
    unsafe fn load(weights: *const u8, blocks: u32, row: u32, b: u32, c: u32) -> Self {
        // SAFETY: the caller's: the row and the block exist.
        unsafe {
            let row = weights.add(row as usize * blocks as usize * 144);
            let quants = global::load_stream(row.add((128 * b + 16 * c) as usize).cast::<U32x4>()).0;
            let header = global::load_nc(row.add((128 * blocks + 16 * b) as usize).cast::<U32x4>()).0;
            Self { quants, header }
        }
    }

    #[inline(always)]
    fn dot(&self, c: u32, x: &Share, sum: f32) -> f32 {
        let [factors, words @ ..] = self.header;
        let (j, d, dmin) = (c >> 1 << 1, half(factors & 0xffff), half(factors >> 16));
        let (a, b) = (six_bit_pair(words, j), six_bit_pair(words, j + 1));
        // The integer scale first: exact.
        let dot_a = (self.sixteen(0, x.quants[0]) * a.0 as i32) as f32;
        let dot_b = (self.sixteen(4, x.quants[1]) * b.0 as i32) as f32;
        let dot = float::fma(dot_a, x.d[0], dot_b * x.d[1]);
        let min = float::fma(a.1 as f32, x.half_sum[0], b.1 as f32 * x.half_sum[1]);
        float::fma(d, dot, float::fma(-dmin, min, sum))
    }
}
