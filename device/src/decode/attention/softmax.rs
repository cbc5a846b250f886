//! The running softmax of a warp over its chunks, for one query head a lane row.

use super::tile::{Scores, Weights};
use crate::decode::kv::{Corner, KvType};
use cuda_std::prelude::*;

/// Maximum and sum so far, of the head of this lane's row; scores are in units of log₂ e.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// The largest score, the same in the four lanes of a row.
    pub max: f32,
    /// The lane's part of the sum of `2^(score - max)`.
    pub sum: f32,
}

impl Running {
    /// Nothing seen yet.
    pub(crate) const NONE: Self = Self {
        max: f32::NEG_INFINITY,
        sum: 0.0,
    };

    /// Nothing seen yet, where the first chunks may have nothing to see either: less than any score, and a number.
    pub(crate) const FINITE: Self = Self {
        max: f32::MIN,
        sum: 0.0,
    };

    /// Takes the lane's scores of N chunks and returns their weights, and the factor for what was summed before. The
    /// weights are rounded before they are summed, so that they still add up to one.
    #[inline(always)]
    pub(crate) fn add<T: KvType, const N: usize>(&mut self, s: [[f32; 4]; N]) -> ([Weights; N], f32) {
        let mut here = self.max;
        unroll!(for I in 0..N {
            here = here.max(s[I][0].max(s[I][1]).max(s[I][2].max(s[I][3])));
        });
        let here = here.max(warp::shuffle_xor(here, 1));
        let max = here.max(warp::shuffle_xor(here, 2));
        let before = float::exp2_approx(self.max - max);
        let mut weights = [[[0; 2]; 2]; N];
        let mut sum = self.sum * before;
        unroll!(for I in 0..N {
            unroll!(for J in 0..2 {
                let weight = |i: usize| float::exp2_approx(s[I][2 * J + i] - max);
                let ([high, low], both) = T::pack(weight(0), weight(1));
                weights[I][0][J] = high;
                weights[I][1][J] = low;
                sum += both;
            });
        });
        (self.max, self.sum) = (max, sum);
        (weights, before)
    }

    /// The sum of the whole row.
    #[inline(always)]
    pub(crate) fn total(&self) -> f32 {
        let sum = self.sum + warp::shuffle_xor(self.sum, 1);
        sum + warp::shuffle_xor(sum, 2)
    }
}

/// The factors of heads 2t and 2t + 1, which lane `(g, t)` has the outputs of, from those of heads g.
#[inline(always)]
pub(crate) fn for_outputs(at: Corner, factor: f32) -> (f32, f32) {
    (warp::shuffle(factor, 8 * at.t), warp::shuffle(factor, 8 * at.t + 4))
}

/// The scores of head `g` for the lane's tokens `token`, `token + 1`, `token + 8`, `token + 9`; those outside
/// `first..end` score -∞.
#[inline(always)]
pub(crate) fn of_lane(scores: &Scores, token: u32, first: u32, end: u32) -> [f32; 4] {
    let mut s = [f32::NEG_INFINITY; 4];
    unroll!(for I in 0..4 {
        let c = scores[I / 2];
        let at = token + 8 * (I as u32 / 2) + I as u32 % 2;
        if at >= first && at < end {
            s[I] = c[I % 2] + c[2 + I % 2];
        }
    });
    s
}
