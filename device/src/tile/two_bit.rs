//! The tile products of Q2_K and Q3_K.
//!
//! `w = d·scale·q − dmin·min` and `w = d·(scale − 32)·(q − 4·n)`, n the inverted third bit. Bits are masked where they lie:
//! the A operand is q·4^f, unsigned, and the few sums are shifted down. Before that they stay below 16·192·32512 < 2²⁷,
//! a row's four of them with their scales below 4·32·16·4·32512 < 2²⁸.

use super::{Activation, Source, Tile, sixteen};
use crate::layout;
use crate::num::half;
use cuda_std::prelude::*;

/// The lane's two bits: see [`layout::Q2KTile`].
#[derive(Clone, Copy)]
struct TwoBits([[u32; 4]; 2]);

/// The bits of `vector` that `mask` keeps in each byte.
#[inline(always)]
fn masked(vector: [u32; 4], mask: u32) -> [u32; 4] {
    [vector[0] & mask, vector[1] & mask, vector[2] & mask, vector[3] & mask]
}

impl TwoBits {
    const ZERO: Self = Self([[0; 4]; 2]);

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's: a whole tile begins with both vectors.
        unsafe { Self([tile.vector(0, lane), tile.vector(512, lane)]) }
    }

    /// Σ q·x of the lane's sub-block of accumulator `A`, rows g and g + 8.
    #[inline(always)]
    fn sums<const A: usize>(&self, x: &Activation, lane: u32) -> [i32; 2] {
        let (vector, mask) = (self.0[A / 2], 0x0303_0303 << (4 * (A & 1)));
        let operands = [masked(vector, mask), masked(vector, mask << 2)];
        let [a, b] = sixteen::unsigned_sums(operands, x, A, lane);
        let shift = 4 * (A as u32 & 1) + (lane & 2);
        [a >> shift, b >> shift]
    }
}

/// Σ byte·v over the four bytes of a word: `prmt` takes a byte out in one instruction.
#[inline(always)]
fn weighted(bytes: u32, v: [i32; 4]) -> i32 {
    let byte = |k: u32| dot::permute_bytes(bytes, 0, 0x4440 | k) as i32;
    (byte(0) * v[0] + byte(1) * v[1]) + (byte(2) * v[2] + byte(3) * v[3])
}

/// A lane's share of a Q2_K tile: see [`layout::Q2KTile`].
#[derive(Clone, Copy)]
pub struct Q2KTile {
    low: TwoBits,
    scales: [u32; 2],
    /// d and dmin of row g, then of row g + 8.
    row_scales: [u32; 2],
}

impl Q2KTile {
    /// Row `r` of the lane: `v` are the sums of its four sub-blocks.
    #[inline(always)]
    fn row(&self, r: usize, v: [i32; 4], x: &Activation) -> f32 {
        let (scales, mins) = (self.scales[r] & 0x0f0f_0f0f, self.scales[r] >> 4 & 0x0f0f_0f0f);
        let (dot, min) = (weighted(scales, v), weighted(mins, x.fine));
        let (d, dmin) = (half(self.row_scales[r] & 0xffff), half(self.row_scales[r] >> 16));
        float::fma(d * x.scale, dot as f32, -(dmin * x.scale * min as f32))
    }
}

impl Tile for Q2KTile {
    const BYTES: usize = layout::Q2KTile::TILE_BYTES;
    type Scales = ();

    #[inline(always)]
    fn zero() -> Self {
        Self {
            low: TwoBits::ZERO,
            scales: [0; 2],
            row_scales: [0; 2],
        }
    }

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            Self {
                low: TwoBits::load(tile, lane),
                scales: tile.pair(layout::Q2KTile::SCALES, lane),
                row_scales: tile.pair(layout::Q2KTile::ROW_SCALES, lane / 4),
            }
        }
    }

    #[inline(always)]
    fn scales(&self, _lane: u32) {}

    #[inline(always)]
    fn prepare(x: Activation, lane: u32) -> Activation {
        sixteen::with_sums(x, lane)
    }

    #[inline(always)]
    fn multiply(&self, (): (), x: &Activation, lane: u32) -> [f32; 2] {
        let (mut v, mut w) = ([0; 4], [0; 4]);
        unroll!(for A in 0..4 {
            [v[A], w[A]] = self.low.sums::<A>(x, lane);
        });
        [self.row(0, v, x), self.row(1, w, x)]
    }
}

/// A lane's share of a Q3_K tile: see [`layout::Q3KTile`].
#[derive(Clone, Copy)]
pub struct Q3KTile {
    low: TwoBits,
    third: [u32; 4],
    low_scales: u32,
    /// In the lane's half.
    high_scales: u32,
    row_scales: u32,
}

impl Q3KTile {
    /// Σ (q − 4n)·x of the lane's sub-block of accumulator `A`.
    #[inline(always)]
    fn sums<const A: usize>(&self, x: &Activation, lane: u32) -> [i32; 2] {
        let mask = 0x0101_0101 << (2 * A);
        let operands = [masked(self.third, mask), masked(self.third, mask << 1)];
        let ([a, b], [n, m]) = (
            self.low.sums::<A>(x, lane),
            sixteen::unsigned_sums(operands, x, A, lane),
        );
        let shift = 2 * A as u32 + (lane >> 1 & 1);
        [a - (n >> shift << 2), b - (m >> shift << 2)]
    }

    /// Row `r` of the lane: its four sums with their scales.
    #[inline(always)]
    fn row(&self, r: u32, high: u32, v: [i32; 4]) -> i32 {
        let scale = |a: u32| {
            let low = self.low_scales >> (16 * r + 4 * a) & 15;
            (low | (high >> (8 * r + 2 * a) & 3) << 4) as i32 - 32
        };
        (scale(0) * v[0] + scale(1) * v[1]) + (scale(2) * v[2] + scale(3) * v[3])
    }
}

impl Tile for Q3KTile {
    const BYTES: usize = layout::Q3KTile::TILE_BYTES;
    type Scales = [f32; 2];

    #[inline(always)]
    fn zero() -> Self {
        Self {
            low: TwoBits::ZERO,
            third: [0; 4],
            low_scales: 0,
            high_scales: 0,
            row_scales: 0,
        }
    }

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        let at = lane as usize;
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            Self {
                low: TwoBits::load(tile, lane),
                third: tile.vector(layout::Q3KTile::THIRD, lane),
                low_scales: tile.read(layout::Q3KTile::LOW_SCALES + 4 * at),
                high_scales: tile.read(layout::Q3KTile::HIGH_SCALES + 4 * (at / 2)),
                row_scales: tile.read(layout::Q3KTile::ROW_SCALES + (at & !3)),
            }
        }
    }

    #[inline(always)]
    fn scales(&self, _lane: u32) -> [f32; 2] {
        [half(self.row_scales & 0xffff), half(self.row_scales >> 16)]
    }

    #[inline(always)]
    fn multiply(&self, d: [f32; 2], x: &Activation, lane: u32) -> [f32; 2] {
        let (mut v, mut w) = ([0; 4], [0; 4]);
        unroll!(for A in 0..4 {
            [v[A], w[A]] = self.sums::<A>(x, lane);
        });
        let high = self.high_scales >> (16 * (lane & 1));
        [
            d[0] * x.scale * self.row(0, high, v) as f32,
            d[1] * x.scale * self.row(1, high, w) as f32,
        ]
    }
}
