//! The tile products of Q2_K and Q3_K.
//!
//! `w = d·scale·q − dmin·min` and `w = d·(scale − 32)·(q − 4)`. Bits are masked where they lie: the A operand is a power of
//! two times q, unsigned, and the few sums are shifted down. Those of Q2_K stay below 16·192·32512 < 2²⁷ before that, a
//! row's four of them with their scales below 4·15·16·3·32512 < 2²⁷. Those of Q3_K, once 4·Σ x is off, are shifted
//! with their scales: three together stay below 3·32·8·16·4·32512 < 2³¹, the fourth below 32·32·16·4·32512 < 2³¹.

use super::{Activation, Source, Tile, sixteen};
use crate::layout;
use crate::num::half;
use cuda_std::prelude::*;

/// The lane's two bits: see [`layout::Q2KTile`].
#[derive(Clone, Copy)]
pub(crate) struct TwoBits(pub(crate) [[u32; 4]; 2]);

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
    pub(crate) low: TwoBits,
    pub(crate) scales: [u32; 2],
    /// d and dmin of row g, then of row g + 8.
    pub(crate) row_scales: [u32; 2],
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
    pub(crate) values: [[u32; 4]; 3],
    low_scales: u32,
    /// In the lane's half.
    high_scales: u32,
    row_scales: u32,
}

/// By how many bits the sums of the lane's sub-block of accumulators 0…2 are too high.
#[inline(always)]
fn raised(lane: u32) -> u32 {
    3 * (lane >> 1 & 1)
}

/// And those of accumulator 3.
const RAISED_LAST: u32 = 5;

/// The A operand of accumulator 3: two bits that lie on top, and below them bit 6 of `low`.
#[inline(always)]
fn gathered(top: [u32; 4], low: [u32; 4]) -> [u32; 4] {
    let word = |k: usize| top[k] & 0xc0c0_c0c0 | low[k] >> 1 & 0x2020_2020;
    [word(0), word(1), word(2), word(3)]
}

impl Q3KTile {
    /// The A operands of the two products of accumulator `A`.
    #[inline(always)]
    fn operands<const A: usize>(&self) -> [[u32; 4]; 2] {
        let [first, second, third] = self.values;
        if A < 3 {
            let both = self.values[A % 3];
            [masked(both, 0x0707_0707), masked(both, 0x3838_3838)]
        } else {
            let next = third.map(|word| word >> 1);
            [gathered(first, third), gathered(second, next)]
        }
    }

    /// `scale − 32` of the lane's four sub-blocks of rows g and g + 8, each a signed byte.
    #[inline(always)]
    pub(crate) fn sub_scales(&self, lane: u32) -> [u32; 2] {
        let low = [self.low_scales & 0x0f0f_0f0f, self.low_scales >> 4 & 0x0f0f_0f0f];
        let half = dot::permute_bytes(self.high_scales, 0, if lane & 1 == 0 { 0x4410 } else { 0x4432 });
        let high = [half | half << 14, half << 4 | half << 18].map(|bits| bits & 0x3030_3030);
        // 96 more is 32 less, but for the top bit, and has no carry.
        let signed = |k: usize| ((low[k] | high[k]) + 0x6060_6060) ^ 0x8080_8080;
        [signed(0), signed(1)]
    }

    /// Row `r` of the lane: its four sums with their scales, still raised, shifted down.
    #[inline(always)]
    fn row(scales: u32, v: [i32; 4], lane: u32) -> i32 {
        // `prmt` takes the byte, and three times eight copies of its sign.
        let part = |k: usize| dot::permute_bytes(scales, 0, 0x8880 + 0x1111 * k as u32) as i32 * v[k];
        (((part(0) + part(1)) + part(2)) >> raised(lane)) + (part(3) >> RAISED_LAST)
    }
}

impl Tile for Q3KTile {
    const BYTES: usize = layout::Q3KTile::TILE_BYTES;
    type Scales = [f32; 2];

    #[inline(always)]
    fn zero() -> Self {
        Self {
            values: [[0; 4]; 3],
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
                values: [tile.vector(0, lane), tile.vector(512, lane), tile.vector(1024, lane)],
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
    fn prepare(x: Activation, lane: u32) -> Activation {
        let x = sixteen::with_sums(x, lane);
        let mut fine = x.fine.map(|sum| (4 * sum) << raised(lane));
        fine[3] = (4 * x.fine[3]) << RAISED_LAST;
        Activation { fine, ..x }
    }

    #[inline(always)]
    fn multiply(&self, d: [f32; 2], x: &Activation, lane: u32) -> [f32; 2] {
        let (mut v, mut w) = ([0; 4], [0; 4]);
        unroll!(for A in 0..4 {
            let [a, b] = sixteen::unsigned_sums(self.operands::<A>(), x, A, lane);
            [v[A], w[A]] = [a - x.fine[A], b - x.fine[A]];
        });
        let scales = self.sub_scales(lane);
        [
            d[0] * x.scale * Self::row(scales[0], v, lane) as f32,
            d[1] * x.scale * Self::row(scales[1], w, lane) as f32,
        ]
    }
}
