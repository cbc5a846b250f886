//! The tile product of Q6_K.
//!
//! `w = d·scale·(q − 32)` with a signed 8-bit scale per 16 columns. The A operand is 4·(q − 32), so an accumulator is
//! four times the sum of a sub-block, exactly; the sum itself stays under 16·32·32512 < 2²⁴ and times its scale under
//! 2³¹, but two of them would not: each becomes a float before they are added.

use super::{Activation, Source, Tile, wide};
use crate::layout;
use crate::num::half;
use cuda_std::prelude::*;

/// A lane's share of a Q6_K tile: see [`layout::Q6KTile`].
#[derive(Clone, Copy)]
pub struct Q6KTile {
    pub(crate) low: [[u32; 4]; 4],
    pub(crate) high: [[u32; 4]; 2],
    pub(crate) scales: [u32; 2],
    row_scales: u32,
}

/// The A operand 4·(q − 32) of product `U` of accumulator `A`: low bits in bits 2…5, high bits in 6…7 of each byte.
#[inline(always)]
fn operand<const A: u32, const U: u32>(low: [u32; 4], high: [u32; 4]) -> [u32; 4] {
    let four = |k: usize| {
        let low = if U == 0 { low[k] << 2 } else { low[k] >> 2 };
        let high = high[k] << (6 - 2 * (2 * (A & 1) + U));
        low & 0x3c3c_3c3c | high & 0xc0c0_c0c0
    };
    [four(0), four(1), four(2), four(3)]
}

impl Q6KTile {
    /// Sums of the four sub-blocks of accumulator `A`: lane `(g, t)` gets those of column pair t, rows g and g + 8.
    #[inline(always)]
    fn sums<const A: u32>(&self, x: &Activation, lane: u32) -> [i32; 2] {
        let (low, high) = (self.low[A as usize], self.high[A as usize / 2]);
        let (word, pair) = (x.words[A as usize], lane >> 3);
        let only = |p: u32| if pair == p { word } else { 0 };
        let c = mma::m16n8k32_s8(operand::<A, 0>(low, high), [only(0), only(1)], [0; 4]);
        let [a, b] = wide(mma::m16n8k32_s8(operand::<A, 1>(low, high), [only(2), only(3)], c));
        [a >> 2, b >> 2]
    }

    /// One row of the lane: four sums, each with the signed byte of `scales` that belongs to it.
    #[inline(always)]
    fn row(scales: u32, v: [i32; 4]) -> f32 {
        let part = |k: u32| (((scales << (24 - 8 * k)) as i32 >> 24) * v[k as usize]) as f32;
        (part(0) + part(1)) + (part(2) + part(3))
    }
}

impl Tile for Q6KTile {
    const BYTES: usize = layout::Q6KTile::TILE_BYTES;
    type Scales = [f32; 2];

    #[inline(always)]
    fn zero() -> Self {
        Self {
            low: [[0; 4]; 4],
            high: [[0; 4]; 2],
            scales: [0; 2],
            row_scales: 0,
        }
    }

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            let vector = |at: usize| tile.vector(at, lane);
            let low = [vector(0), vector(512), vector(1024), vector(1536)];
            let high = [vector(layout::Q6KTile::HIGH), vector(layout::Q6KTile::HIGH + 512)];
            Self {
                low,
                high,
                scales: tile.pair(layout::Q6KTile::SCALES, lane),
                row_scales: tile.read(layout::Q6KTile::ROW_SCALES + (lane as usize & !3)),
            }
        }
    }

    #[inline(always)]
    fn scales(&self, _lane: u32) -> [f32; 2] {
        [half(self.row_scales & 0xffff), half(self.row_scales >> 16)]
    }

    #[inline(always)]
    fn multiply(&self, scales: [f32; 2], x: &Activation, lane: u32) -> [f32; 2] {
        let (a, b) = (self.sums::<0>(x, lane), self.sums::<1>(x, lane));
        let (c, d) = (self.sums::<2>(x, lane), self.sums::<3>(x, lane));
        [
            scales[0] * x.scale * Self::row(self.scales[0], [a[0], b[0], c[0], d[0]]),
            scales[1] * x.scale * Self::row(self.scales[1], [a[1], b[1], c[1], d[1]]),
        ]
    }
}
