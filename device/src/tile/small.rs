//! The tile products of the types with blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0.
//!
//! `w = d·(q − z)` or `w = d·q + m`, one scale for each sub-block: the zero point is taken off the exact integer sum, an
//! offset is multiplied with the sum of the activations.

use super::nibbles::Nibbles;
use super::{Activation, Source, Tile, only, wide};
use crate::layout;
use crate::num::half;
use cuda_std::prelude::*;

/// A lane's share of a tile with nibbles: see [`layout::SmallTile`].
#[derive(Clone, Copy)]
pub struct SmallTile<const FIVE: bool, const OFFSET: bool> {
    pub(crate) nibbles: Nibbles,
    pub(crate) scales: [u32; 2],
    pub(crate) offsets: [u32; 2],
}

/// Q4_0.
pub type Q4_0Tile = SmallTile<false, false>;
/// Q4_1.
pub type Q4_1Tile = SmallTile<false, true>;
/// Q5_0.
pub type Q5_0Tile = SmallTile<true, false>;
/// Q5_1.
pub type Q5_1Tile = SmallTile<true, true>;

/// `f16·v` of both halves of a word.
#[inline(always)]
pub(super) fn scaled(pair: u32, v: [i32; 2]) -> f32 {
    float::fma(half(pair & 0xffff), v[0] as f32, half(pair >> 16) * v[1] as f32)
}

impl<const FIVE: bool, const OFFSET: bool> SmallTile<FIVE, OFFSET> {
    /// The q that stands for 0 in types without an offset.
    pub(crate) const ZERO_POINT: i32 = if FIVE { 16 } else { 8 };

    /// Row `r` of the lane: `v` are the sums of its two sub-blocks.
    #[inline(always)]
    fn row(&self, r: usize, v: [i32; 2], x: &Activation) -> f32 {
        if OFFSET {
            return x.scale * (scaled(self.scales[r], v) + scaled(self.offsets[r], x.sums));
        }
        let [a, b] = x.sums;
        x.scale
            * scaled(
                self.scales[r],
                [v[0] - Self::ZERO_POINT * a, v[1] - Self::ZERO_POINT * b],
            )
    }
}

impl<const FIVE: bool, const OFFSET: bool> Tile for SmallTile<FIVE, OFFSET> {
    const BYTES: usize = layout::SmallTile::<FIVE, OFFSET>::TILE_BYTES;
    type Scales = ();

    #[inline(always)]
    fn zero() -> Self {
        Self {
            nibbles: Nibbles::ZERO,
            scales: [0; 2],
            offsets: [0; 2],
        }
    }

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            let mut nibbles = Nibbles::load(tile, lane);
            if FIVE {
                nibbles.fifth = tile.vector(layout::SmallTile::<FIVE, OFFSET>::FIFTH, lane);
            }
            let scales = tile.pair(layout::SmallTile::<FIVE, OFFSET>::SCALES, lane);
            let offsets = if OFFSET {
                tile.pair(layout::SmallTile::<FIVE, OFFSET>::OFFSETS, lane)
            } else {
                [0; 2]
            };
            Self {
                nibbles,
                scales,
                offsets,
            }
        }
    }

    #[inline(always)]
    fn scales(&self, _lane: u32) {}

    #[inline(always)]
    fn multiply(&self, (): (), x: &Activation, lane: u32) -> [f32; 2] {
        let [c, e] = self.nibbles.sums::<FIVE>(x, lane);
        [self.row(0, [c[0], e[0]], x), self.row(1, [c[1], e[1]], x)]
    }
}

/// A lane's share of a Q8_0 tile: see [`layout::Q8_0Tile`].
#[derive(Clone, Copy)]
pub struct Q8_0Tile {
    pub(crate) quants: [[u32; 4]; 8],
    pub(crate) scales: [u32; 2],
}

impl Q8_0Tile {
    /// Sums of the lane's sub-block of four that begin with `FIRST`, rows g and g + 8.
    #[inline(always)]
    fn sums<const FIRST: usize>(&self, x: [u32; 2], lane: u32) -> [i32; 2] {
        let mut c = [0; 4];
        unroll!(for K in 0..4 {
            c = mma::m16n8k32_s8(self.quants[FIRST + K], only(lane, K as u32, x), c);
        });
        wide(c)
    }
}

impl Tile for Q8_0Tile {
    const BYTES: usize = layout::Q8_0Tile::TILE_BYTES;
    type Scales = ();

    #[inline(always)]
    fn zero() -> Self {
        Self {
            quants: [[0; 4]; 8],
            scales: [0; 2],
        }
    }

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::load_first(tile, lane, 256) }
    }

    /// Sub-blocks that are not there are the last one that is: memory is not asked for them, and no register is loaded in
    /// some cases only.
    #[inline(always)]
    unsafe fn load_first(tile: impl Source, lane: u32, columns: u32) -> Self {
        let last = 16 * columns - 512;
        let mut quants = [[0; 4]; 8];
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            unroll!(for K in 0..8 {
                quants[K] = tile.vector((512 * K as u32).min(last) as usize, lane);
            });
            Self {
                quants,
                scales: tile.pair(layout::Q8_0Tile::SCALES, lane),
            }
        }
    }

    #[inline(always)]
    fn scales(&self, _lane: u32) {}

    #[inline(always)]
    fn multiply(&self, (): (), x: &Activation, lane: u32) -> [f32; 2] {
        let c = self.sums::<0>([x.words[0], x.words[1]], lane);
        let e = self.sums::<4>([x.words[2], x.words[3]], lane);
        [
            x.scale * scaled(self.scales[0], [c[0], e[0]]),
            x.scale * scaled(self.scales[1], [c[1], e[1]]),
        ]
    }
}
