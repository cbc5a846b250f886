//! The tile products of Q4_K and Q5_K.
//!
//! `w = d·scale·q − dmin·min`, so a row's share of a lane is `x·d·Σ scale·(Σ q·x) − x·dmin·Σ min·(Σ x)` over its two
//! sub-blocks. The inner sums are exact integers. With four bits both scaled ones fit an integer together
//! (2·63·15·32·32512 < 2³¹), with five bits only each alone: there they become floats before they are added.

use super::nibbles::Nibbles;
use super::{Activation, Source, Tile};
use crate::layout;
use crate::num::half;
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// A lane's share of a Q4_K tile (see [`layout::Q4KTile`]) or, with `FIVE`, of a Q5_K tile ([`layout::Q5KTile`]).
#[derive(Clone, Copy)]
pub struct KTile<const FIVE: bool> {
    pub(crate) nibbles: Nibbles,
    pub(crate) headers: [u32; 2],
}

/// Q4_K.
pub type Q4KTile = KTile<false>;
/// Q5_K.
pub type Q5KTile = KTile<true>;

/// d and dmin of a lane's two rows.
#[derive(Clone, Copy)]
pub struct KScales {
    pub(crate) d: [f32; 2],
    pub(crate) dmin: [f32; 2],
}

impl<const FIVE: bool> KTile<FIVE> {
    /// One row of the lane: `header` has its scales and minimums, `v` the sums of its two sub-blocks.
    #[inline(always)]
    fn row(header: u32, v: [i32; 2], d: f32, dmin: f32, x: &Activation) -> f32 {
        // To the top and down again: a product and a shift, which do not wait for each other's units as two shifts do.
        let six = |at: u32| match at {
            0 => header & 63,
            _ => rolled(header << (26 - at)) >> 26,
        } as i32;
        let (a, b) = (six(0) * v[0], six(6) * v[1]);
        let dot = if FIVE { a as f32 + b as f32 } else { (a + b) as f32 };
        let min = six(12) * x.sums[0] + six(18) * x.sums[1];
        float::fma(d * x.scale, dot, -(dmin * x.scale * min as f32))
    }
}

impl<const FIVE: bool> Tile for KTile<FIVE> {
    const BYTES: usize = if FIVE {
        layout::Q5KTile::TILE_BYTES
    } else {
        layout::Q4KTile::TILE_BYTES
    };
    type Scales = KScales;

    #[inline(always)]
    fn zero() -> Self {
        Self {
            nibbles: Nibbles::ZERO,
            headers: [0; 2],
        }
    }

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            let mut nibbles = Nibbles::load(tile, lane);
            if FIVE {
                nibbles.fifth = tile.vector(layout::Q5KTile::FIFTH, lane);
            }
            Self {
                nibbles,
                headers: tile.pair(layout::Q4KTile::HEADERS, lane),
            }
        }
    }

    #[inline(always)]
    fn scales(&self, lane: u32) -> KScales {
        let mine = dot::permute_bytes(self.headers[0], self.headers[1], 0x7373);
        let of = |k: u32| half(warp::shuffle(mine, (lane & 28) | k));
        let (d0, dmin0, d1, dmin1) = (of(0), of(1), of(2), of(3));
        KScales {
            d: [d0, d1],
            dmin: [dmin0, dmin1],
        }
    }

    #[inline(always)]
    fn multiply(&self, scales: KScales, x: &Activation, lane: u32) -> [f32; 2] {
        let [c, e] = self.nibbles.sums::<FIVE>(x, lane);
        [
            Self::row(self.headers[0], [c[0], e[0]], scales.d[0], scales.dmin[0], x),
            Self::row(self.headers[1], [c[1], e[1]], scales.d[1], scales.dmin[1], x),
        ]
    }
}
