//! A tile times the vectors of four sequences at once.
//!
//! The B operand of the tile product has eight columns: the high and the low bytes of four sequences. So a tile's bytes are
//! brought into the shape of the A operand once for all of them, and lane `(g, t)` ends with rows g and g + 8 of sequence
//! t: nothing is left to be added up over lanes. Unlike in [the product of one vector](crate::tile), each sub-block has an
//! accumulator of its own, to which its scale is applied; high and low bytes stay apart until the end, which keeps all
//! sums of a block in integers:
//!
//! | sum | at most |
//! |---|---|
//! | Q4_K, odd sub-blocks (16 times their nibbles) | 4 · 63 · 32 · 240 · 128 < 2²⁸ |
//! | Q4_K, minimums | 8 · 63 · 32 · 128 · 256 < 2³⁰ |
//! | Q6_K | 16 · 128 · 16 · 128 · 128 < 2³⁰ |
//!
//! Minimums are a product too: of a matrix whose rows repeat them.

use crate::layout::activation::Wide;
use crate::tile::{Q4KTile, Q6KTile, Tile};
use cuda_std::prelude::*;

/// 1.5·2²³: a float of this size has no fraction, and its low 22 bits count in units.
const UNITS: f32 = 12_582_912.0;

/// 256 columns of four sequences, as the B operand.
pub(super) trait Operand {
    /// Word `i` = 2j + h of lane (n, t): columns 32j + 16h + 4t … +3 of sequence n / 2 as `q = round(x·32512 / max|x|)`, their
    /// high bytes for even n, the low ones for odd n.
    fn word(&self, i: usize) -> u32;

    /// Value of one step of sequence t.
    fn scale(&self) -> f32;
}

/// The operand, made from columns in memory where it is used. Each lane would hold 64 of them, more than
/// there are registers for: they are read twice, and the second time found in L1.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    /// The lane's first columns.
    at: *const f32,
    inverse: f32,
    units: f32,
    two_bytes: u32,
    scale: f32,
}

impl Columns {
    /// The 256 columns at `x(s)` of each sequence s. All lanes of the warp call this together.
    ///
    /// # Safety
    /// There are as many, 16-byte aligned, for each of the four, as long as this is used.
    #[inline(always)]
    pub(super) unsafe fn new(x: impl Fn(u32) -> *const f32, lane: u32) -> Self {
        let at = x(lane >> 3).wrapping_add(4 * (lane & 3) as usize);
        let mut most = [0f32; 4];
        unroll!(for I in 0..16 {
            // SAFETY: the caller's.
            let columns = unsafe { global::load(at.add(16 * I).cast::<F32x4>()).0 };
            unroll!(for K in 0..4 {
                most[K] = float::max(most[K], float::abs(columns[K]));
            });
        });
        // Nothing that was read is kept across this.
        warp::sync();
        Self::of(at, most, lane)
    }

    /// The same, with what is known of them: the largest magnitude of every 16 columns of sequence s at `peaks(s)`.
    ///
    /// # Safety
    /// As [`new`](Self::new), and there are 16 peaks, 16-byte aligned, for each of the four.
    #[inline(always)]
    pub(super) unsafe fn peaked(x: impl Fn(u32) -> *const f32, peaks: impl Fn(u32) -> *const f32, lane: u32) -> Self {
        let t = 4 * (lane & 3) as usize;
        // SAFETY: the caller's.
        let most = unsafe { global::load(peaks(lane >> 3).add(t).cast::<F32x4>()).0 };
        Self::of(x(lane >> 3).wrapping_add(t), most, lane)
    }

    /// The lane's columns from `at`, of which the quad's lanes know the largest magnitudes.
    #[inline(always)]
    fn of(at: *const f32, most: [f32; 4], lane: u32) -> Self {
        let most = float::max(float::max(most[0], most[1]), float::max(most[2], most[3]));
        let most = float::max(most, warp::shuffle_xor(most, 1));
        let most = float::max(most, warp::shuffle_xor(most, 2));
        let inverse = if most > 0.0 {
            Wide::MAX * float::rcp_approx(most)
        } else {
            0.0
        };
        // The high byte of q + 128 is the high byte that goes with a signed low byte.
        let (units, two_bytes) = if lane & 4 == 0 {
            (UNITS + 128.0, 0x51)
        } else {
            (UNITS, 0x40)
        };
        Self {
            at,
            inverse,
            units,
            two_bytes,
            scale: warp::shuffle(most, 8 * (lane & 3)) * (1.0 / Wide::MAX),
        }
    }
}

impl Operand for Columns {
    #[inline(always)]
    fn word(&self, i: usize) -> u32 {
        // SAFETY: the columns that `new` was promised.
        let columns = unsafe { global::load(self.at.add(16 * i).cast::<F32x4>()).0 };
        let bits = |k: usize| float::fma(columns[k], self.inverse, self.units).to_bits();
        let low = dot::permute_bytes(bits(0), bits(1), self.two_bytes);
        let high = dot::permute_bytes(bits(2), bits(3), self.two_bytes);
        dot::permute_bytes(low, high, 0x5410)
    }

    #[inline(always)]
    fn scale(&self) -> f32 {
        self.scale
    }
}

/// The operand in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    words: Shared<u32>,
    lane: u32,
}

impl Kept {
    /// Bytes of it.
    pub const BYTES: u32 = 17 * 128;

    /// At `offset` bytes into dynamic shared memory.
    #[inline(always)]
    pub fn at(offset: u32, lane: u32) -> Self {
        Self {
            words: shared::dynamic(offset, Self::BYTES / 4),
            lane,
        }
    }

    /// Keeps `x`; a lane loads what it stored.
    #[inline(always)]
    pub fn store(self, x: &Columns) {
        unroll!(for I in 0..16 {
            self.words.store(32 * I as u32 + self.lane, x.word(I));
        });
        self.words.store(512 + self.lane, x.scale.to_bits());
    }
}

impl Operand for Kept {
    #[inline(always)]
    fn word(&self, i: usize) -> u32 {
        self.words.load(32 * i as u32 + self.lane)
    }

    #[inline(always)]
    fn scale(&self) -> f32 {
        f32::from_bits(self.words.load(512 + self.lane))
    }
}

/// A tile that multiplies four vectors.
pub(super) trait Fourfold: Tile {
    /// Rows g and g + 8 of sequence t, in lane (g, t). All lanes of the warp call this together.
    fn times(&self, x: &impl Operand, lane: u32) -> [f32; 2];
}

/// What lane `(lane & 28) | p` has of two words.
#[inline(always)]
fn of_quad(words: [u32; 2], p: usize, lane: u32) -> [u32; 2] {
    let from = (lane & 28) | p as u32;
    [warp::shuffle(words[0], from), warp::shuffle(words[1], from)]
}

/// `sum[i] + s · c[i]` for the two bytes of row g, and with `u` for those of row g + 8.
#[inline(always)]
fn scaled(sum: [i32; 4], c: [i32; 4], s: i32, u: i32) -> [i32; 4] {
    [
        sum[0] + s * c[0],
        sum[1] + s * c[1],
        sum[2] + u * c[2],
        sum[3] + u * c[3],
    ]
}

/// `256·hi + lo` of both rows.
#[inline(always)]
fn joined(sum: [i32; 4]) -> [f32; 2] {
    [
        float::fma(sum[0] as f32, 256.0, sum[1] as f32),
        float::fma(sum[2] as f32, 256.0, sum[3] as f32),
    ]
}

impl Fourfold for Q4KTile {
    #[inline(always)]
    fn times(&self, x: &impl Operand, lane: u32) -> [f32; 2] {
        let scales = Tile::scales(self, lane);
        let (mut sums, mut mins) = ([[0; 4]; 2], [0; 4]);
        unroll!(for P in 0..4 {
            let headers = of_quad(self.headers, P, lane);
            unroll!(for H in 0..2 {
                const J: usize = P + 4 * H;
                let words = self.nibbles.quants[J / 2];
                let nibbles = |k: usize| words[k] & (0x0f0f_0f0f << (4 * (J & 1)));
                let six = |r: usize, at: usize| headers[r] >> (at + 6 * H) & 63;
                let b = [x.word(2 * J), x.word(2 * J + 1)];
                let c = mma::m16n8k32_u8_s8([nibbles(0), nibbles(1), nibbles(2), nibbles(3)], b, [0; 4]);
                sums[J % 2] = scaled(sums[J % 2], c, six(0, 0) as i32, six(1, 0) as i32);
                let (m, k) = (six(0, 12) * 0x0101_0101, six(1, 12) * 0x0101_0101);
                mins = mma::m16n8k32_u8_s8([m, k, m, k], b, mins);
            });
        });
        let [even, odd] = sums;
        let sum = |i: usize| even[i] + (odd[i] >> 4);
        let dots = joined([sum(0), sum(1), sum(2), sum(3)]);
        let step = x.scale();
        let row = |r: usize| {
            let min = (256 * mins[2 * r] + mins[2 * r + 1]) as f32;
            float::fma(scales.d[r] * step, dots[r], -(scales.dmin[r] * step * min))
        };
        [row(0), row(1)]
    }
}

impl Fourfold for Q6KTile {
    #[inline(always)]
    fn times(&self, x: &impl Operand, lane: u32) -> [f32; 2] {
        let d = Tile::scales(self, lane);
        let mut sums = [0; 4];
        unroll!(for P in 0..4 {
            let scales = of_quad(self.scales, P, lane);
            unroll!(for A in 0..4 {
                // Half P % 2 of product P / 2 of accumulator A: 16 columns.
                const I: usize = 8 * (A / 2) + 2 * P + A % 2;
                let four = |r: usize| self.four(A, P / 2, 2 * (P % 2) + r);
                let c = mma::m16n8k32_s8([four(0), four(1), 0, 0], [x.word(I), 0], [0; 4]);
                let scale = |r: usize| (scales[r] << (24 - 8 * A)) as i32 >> 24;
                sums = scaled(sums, c, scale(0), scale(1));
            });
        });
        let dots = joined(sums);
        let step = 0.25 * x.scale();
        [d[0] * step * dots[0], d[1] * step * dots[1]]
    }
}
