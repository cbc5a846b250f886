//! A lane's share of a Q6_K block: 16 bytes of nibbles, two words of high bits, two signed scales.

use super::{Lane, Share};
use crate::layout;
use crate::num::half;
use cuda_std::prelude::*;

#[derive(Clone, Copy)]
pub(super) struct Q6KLane {
    low: [u32; 4],
    high: [u32; 2],
    scales: u32,
    d: u32,
}

impl Q6KLane {
    /// 4·Σ (q − 32)·x over 16 columns of run `RUN`: the signed bytes are 4·(q − 32), made without a subtraction.
    #[inline(always)]
    fn sixteen<const RUN: usize>(&self, x: [u32; 4]) -> i32 {
        let mut sum = 0;
        unroll!(for K in 0..4 {
            let low = if RUN == 0 { self.low[K] << 2 } else { self.low[K] >> 2 };
            let high = self.high[RUN] << (6 - 2 * K as u32);
            sum = dot::dp4a_ss(low & 0x3c3c_3c3c | high & 0xc0c0_c0c0, x[K], sum);
        });
        sum
    }

    #[inline(always)]
    fn scale(&self, run: u32) -> i32 {
        (self.scales << (24 - 8 * run)) as i32 >> 24
    }
}

impl Lane for Q6KLane {
    const SECOND: u32 = 4;

    #[inline(always)]
    fn first(c: u32) -> u32 {
        8 * (c >> 2) + (c & 3)
    }

    #[inline(always)]
    fn zero() -> Self {
        Self {
            low: [0; 4],
            high: [0; 2],
            scales: 0,
            d: 0,
        }
    }

    #[inline(always)]
    unsafe fn load(weights: *const u8, blocks: u32, row: u32, b: u32, c: u32) -> Self {
        let planes = layout::Q6KRow::planes(blocks as usize);
        let (i, c) = (((row & 7) * blocks + b) as usize, c as usize);
        // SAFETY: the caller's: the row and the block exist, so the whole group of 8 rows does.
        unsafe {
            let group = weights.add((row >> 3) as usize * blocks as usize * 8 * 210);
            Self {
                low: global::load_stream(group.add(128 * i + 16 * c).cast::<U32x4>()).0,
                high: global::load_stream(group.add(planes.high + 64 * i + 8 * c).cast::<U32x2>()).0,
                scales: u32::from(global::load_stream(
                    group.add(planes.scales + 16 * i + 2 * c).cast::<u16>(),
                )),
                d: u32::from(global::load_nc(group.add(planes.row_scales + 2 * i).cast::<u16>())),
            }
        }
    }

    #[inline(always)]
    fn dot(&self, _c: u32, x: &Share, sum: f32) -> f32 {
        // The integer scale first: exact.
        let a = (self.sixteen::<0>(x.quants[0]) * self.scale(0)) as f32;
        let b = (self.sixteen::<1>(x.quants[1]) * self.scale(1)) as f32;
        float::fma(0.25 * half(self.d), float::fma(a, x.d[0], b * x.d[1]), sum)
    }
}
