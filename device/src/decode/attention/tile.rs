//! The two matrix products of attention on tensor cores, for a chunk of 16 tokens of one key/value head.
//!
//! Scores: `S = Q · Kᵀ`, 16 rows of Q by 8 tokens at a time (score tile `j`: tokens `8j …`); then `Oᵀ = Vᵀ · Pᵀ`, 16 dims
//! by 8 heads at a time. Nothing moves between lanes:
//!
//! - the order of dims inside a product does not matter as long as Q and K agree, so lane `(g, t)` takes dims
//!   `8t … 8t+7` of every 32: step `s` of two multiplies dims `8t+4s … 8t+4s+3`;
//! - lane `(g, t)` ends with the scores of row `g` for tokens `8j + 2t` and `8j + 2t + 1`: as weights, they are the B
//!   operand of the second product as they are.
//!
//! A *group* is 8 query heads, two rows of Q each: row `g` is head `g` in 16 bits, row `g + 8` what rounding lost of it, so
//! the scores are those of a Q of twice the precision for nothing.

use crate::decode::kv::{Corner, KvType};
use cuda_std::prelude::*;

/// Rows of Q that kernels multiply, from wherever they lie.
///
/// A row holds its dims in pairs, as stored and then what rounding lost: [`query_at`].
pub(crate) trait Rows {
    /// The lane's A fragments of rows `g` and `g + 8` of a group: dims `32c + 8t …` and `32c + 8t + 4 …`.
    fn fragments(&self, at: Corner, group: usize, c: u32) -> [[u32; 4]; 2];
}

/// Index of dim `dim` in a row of Q; two behind it lies what rounding lost.
#[inline(always)]
pub(crate) const fn query_at(dim: u32) -> u32 {
    dim / 2 * 4 + dim % 2
}

/// Q in shared memory: a row of each head, 16 bytes longer than it need be so that rows do not share banks.
#[derive(Clone, Copy)]
pub(crate) struct Queries<const HD: u32>(pub Shared<u16>);

impl<const HD: u32> Queries<HD> {
    const ROW: u32 = 2 * HD + 8;

    /// Bytes of shared memory for `groups` groups.
    pub(crate) const fn bytes(groups: u32) -> u32 {
        8 * groups * Self::ROW * 2
    }

    /// Stores dim `dim` of head `head`: its 16 bits, and what they lost.
    #[inline(always)]
    pub(crate) fn set(self, head: u32, dim: u32, [high, low]: [u16; 2]) {
        let at = head * Self::ROW + query_at(dim);
        self.0.store(at, high);
        self.0.store(at + 2, low);
    }
}

impl<const HD: u32> Rows for Queries<HD> {
    #[inline(always)]
    fn fragments(&self, at: Corner, group: usize, c: u32) -> [[u32; 4]; 2] {
        let from = self.0.cast::<U32x4>();
        let first = ((8 * group as u32 + at.g) * Self::ROW + query_at(32 * c + 8 * at.t)) / 8;
        [from.load(first).0, from.load(first + 1).0]
    }
}

/// The two score tiles of a chunk, for a group.
pub(crate) type Scores = [[f32; 4]; 2];

/// Adds the products of batch `b` of a chunk's keys to the scores of each group.
#[inline(always)]
pub(crate) fn score<T: KvType, const HD: u32, const GROUPS: usize>(
    scores: &mut [Scores; GROUPS],
    rows: &impl Rows,
    at: Corner,
    keys: &T::Batch,
    b: u32,
) {
    warp::sync();
    unroll!(for C in 0..4 {
        if 4 * b + (C as u32) < HD / 32 {
            unroll!(for J in 0..2 {
                let k = T::keys(keys, C, J);
                unroll!(for G in 0..GROUPS {
                    let q = rows.fragments(at, G, 4 * b + C as u32);
                    let before = if T::FORMAT.scaled() { [0.0; 4] } else { scores[G][J] };
                    let s = T::mma(q[0], [k[0], k[1]], before);
                    let s = T::mma(q[1], [k[2], k[3]], s);
                    scores[G][J] = if T::FORMAT.scaled() {
                        scaled(scores[G][J], T::key_scales(keys, C, J), s)
                    } else {
                        s
                    };
                });
            });
        }
    });
}

/// `sum + scale · s`, the scales those of a tile's columns.
#[inline(always)]
fn scaled(sum: [f32; 4], [even, odd]: [f32; 2], s: [f32; 4]) -> [f32; 4] {
    [
        float::fma(even, s[0], sum[0]),
        float::fma(odd, s[1], sum[1]),
        float::fma(even, s[2], sum[2]),
        float::fma(odd, s[3], sum[3]),
    ]
}

/// The weights of a chunk's tokens for the heads of a group, in pairs: of each part, tokens `2t …` and `8 + 2t …`.
pub(crate) type Weights = [[u32; 2]; 2];

/// Outputs of a warp for a group, transposed: `[m]` holds dims `16m + g` (heads 2t, 2t+1) and `16m + g + 8`.
pub(crate) type Output = [[f32; 4]; 16];

/// Adds batch `b` of a chunk's values, weighted.
#[inline(always)]
pub(crate) fn mix<T: KvType, const HD: u32>(out: &mut Output, values: &T::Batch, weights: &Weights, b: u32) {
    unroll!(for M in 0..16 {
        if (M as u32) < HD / 16 && M as u32 / 8 == b {
            let v = T::values(values, M % 8);
            out[M] = T::mma(v, T::weighted(values, M % 8 / 2, weights[0]), out[M]);
            if T::WEIGHT_PARTS > 1 {
                out[M] = T::mma(v, T::weighted(values, M % 8 / 2, weights[1]), out[M]);
            }
        }
    });
}

/// Multiplies the outputs of heads 2t and 2t+1.
#[inline(always)]
pub(crate) fn rescale<const HD: u32>(out: &mut Output, even: f32, odd: f32) {
    unroll!(for M in 0..16 {
        if (M as u32) < HD / 16 {
            let o = out[M];
            out[M] = [o[0] * even, o[1] * odd, o[2] * even, o[3] * odd];
        }
    });
}
