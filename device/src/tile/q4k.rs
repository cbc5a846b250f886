//! The tile product of Q4_K.
//!
//! `w = d·scale·q − dmin·min`, so a row's share of a lane is `x·d·Σ scale·(Σ q·x) − x·dmin·Σ min·(Σ x)`, both sums over
//! its two sub-blocks in integers: at most 2·63·15·32·32512 < 2³¹.

use super::{Activation, Tile, only, wide};
use crate::layout;
use crate::num::half;
use cuda_std::prelude::*;

/// A lane's share of a Q4_K tile: see [`layout::Q4KTile`].
#[derive(Clone, Copy)]
pub struct Q4KTile {
    quants: [[u32; 4]; 4],
    headers: [u32; 2],
}

/// d and dmin of a lane's two rows.
#[derive(Clone, Copy)]
pub struct Q4KScales {
    d: [f32; 2],
    dmin: [f32; 2],
}

/// Adds the products of both sub-blocks of 32 in a vector of nibbles.
#[inline(always)]
fn both_nibbles(q: [u32; 4], x_low: [u32; 2], x_high: [u32; 2], c: [i32; 4]) -> [i32; 4] {
    let nibble = |shift: u32| {
        let of = |w: u32| w >> shift & 0x0f0f_0f0f;
        [of(q[0]), of(q[1]), of(q[2]), of(q[3])]
    };
    mma::m16n8k32_s8(nibble(4), x_high, mma::m16n8k32_s8(nibble(0), x_low, c))
}

impl Q4KTile {
    /// One row of the lane: `header` has its scales and minimums, `v` the sums of its two sub-blocks.
    #[inline(always)]
    fn row(header: u32, v: [i32; 2], d: f32, dmin: f32, x: &Activation) -> f32 {
        let six = |at: u32| (header >> at & 63) as i32;
        let dot = six(0) * v[0] + six(6) * v[1];
        let min = six(12) * x.sums[0] + six(18) * x.sums[1];
        float::fma(d * x.scale, dot as f32, -(dmin * x.scale * min as f32))
    }
}

impl Tile for Q4KTile {
    const BYTES: usize = layout::Q4KTile::TILE_BYTES;
    type Scales = Q4KScales;

    #[inline(always)]
    fn zero() -> Self {
        Self {
            quants: [[0; 4]; 4],
            headers: [0; 2],
        }
    }

    #[inline(always)]
    unsafe fn load(tile: *const u8, lane: u32) -> Self {
        let lane = lane as usize;
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            let vector = |j: usize| global::load_stream(tile.add(512 * j + 16 * lane).cast::<U32x4>()).0;
            let quants = [vector(0), vector(1), vector(2), vector(3)];
            let headers = global::load_stream(tile.add(layout::Q4KTile::HEADERS + 8 * lane).cast::<U32x2>());
            Self {
                quants,
                headers: headers.0,
            }
        }
    }

    #[inline(always)]
    fn scales(&self, lane: u32) -> Q4KScales {
        let mine = self.headers[0] >> 24 | self.headers[1] >> 24 << 8;
        let of = |k: u32| half(warp::shuffle(mine, lane & 28 | k));
        let (d0, dmin0, d1, dmin1) = (of(0), of(1), of(2), of(3));
        Q4KScales {
            d: [d0, d1],
            dmin: [dmin0, dmin1],
        }
    }

    #[inline(always)]
    fn multiply(&self, scales: Q4KScales, x: &Activation, lane: u32) -> [f32; 2] {
        let (first, second) = ([x.words[0], x.words[1]], [x.words[2], x.words[3]]);
        let (q, zero) = (&self.quants, [0; 4]);
        let c = both_nibbles(q[0], only(lane, 0, first), only(lane, 1, first), zero);
        let c = both_nibbles(q[1], only(lane, 2, first), only(lane, 3, first), c);
        let e = both_nibbles(q[2], only(lane, 0, second), only(lane, 1, second), zero);
        let e = both_nibbles(q[3], only(lane, 2, second), only(lane, 3, second), e);
        let (c, e) = (wide(c), wide(e));
        [
            Self::row(self.headers[0], [c[0], e[0]], scales.d[0], scales.dmin[0], x),
            Self::row(self.headers[1], [c[1], e[1]], scales.d[1], scales.dmin[1], x),
        ]
    }
}
