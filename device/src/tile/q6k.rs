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
    planes: [[[u32; 4]; 3]; 2],
    pub(crate) scales: [u32; 2],
    row_scales: u32,
}

impl Q6KTile {
    /// A register `k` of product `u` of accumulator `a`: four bytes 4·(q − 32). Both are known when this is compiled.
    #[inline(always)]
    pub(crate) fn four(&self, a: usize, u: usize, k: usize) -> u32 {
        let planes = self.planes[a / 2];
        let piece = |v: usize| (planes[v][k] << (6 - 2 * v)) & (0xc0c0_c0c0 >> (2 * v));
        match 2 * (a % 2) + u {
            3 => piece(0) | piece(1) | piece(2),
            v => planes[v][k] & 0xfcfc_fcfc,
        }
    }

    /// Sums of the four sub-blocks of accumulator `A`: lane `(g, t)` gets those of column pair t, rows g and g + 8.
    #[inline(always)]
    fn sums<const A: u32>(&self, x: &Activation, lane: u32) -> [i32; 2] {
        let operand = |u: usize| [0, 1, 2, 3].map(|k| self.four(A as usize, u, k));
        let (word, pair) = (x.words[A as usize], lane >> 3);
        let only = |p: u32| if pair == p { word } else { 0 };
        let c = mma::m16n8k32_s8(operand(0), [only(0), only(1)], [0; 4]);
        let [a, b] = wide(mma::m16n8k32_s8(operand(1), [only(2), only(3)], c));
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
            planes: [[[0; 4]; 3]; 2],
            scales: [0; 2],
            row_scales: 0,
        }
    }

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            let vector = |i: usize| tile.vector(512 * i, lane);
            let planes = |s: usize| [vector(3 * s), vector(3 * s + 1), vector(3 * s + 2)];
            Self {
                planes: [planes(0), planes(1)],
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
