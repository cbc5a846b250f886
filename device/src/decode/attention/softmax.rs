//! The running softmax of a warp over its chunks, for one query head a lane row.

use super::tile::{Corner, Scores};
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

    /// Takes 8 scores of the lane's head and returns their weights as packed f16 pairs, and the factor for what was
    /// summed before. The weights are rounded before they are summed, so that they still add up to one.
    #[inline(always)]
    pub(crate) fn add(&mut self, s: [f32; 8]) -> ([u32; 4], f32) {
        let here = max4(s[0], s[1], s[2], s[3]).max(max4(s[4], s[5], s[6], s[7]));
        let here = here.max(warp::shuffle_xor(here, 1));
        let max = self.max.max(here.max(warp::shuffle_xor(here, 2)));
        let before = float::exp2_approx(self.max - max);
        let mut weights = [0; 4];
        let mut sum = self.sum * before;
        unroll!(for J in 0..4 {
            let pair = half2::F16x2::from_f32(
                float::exp2_approx(s[2 * J] - max),
                float::exp2_approx(s[2 * J + 1] - max),
            );
            let [a, b] = pair.to_f32();
            sum += a + b;
            weights[J] = pair.0;
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

#[inline(always)]
fn max4(a: f32, b: f32, c: f32, d: f32) -> f32 {
    a.max(b).max(c.max(d))
}

/// The factors of heads 2t and 2t + 1, which lane `(g, t)` has the outputs of, from those of heads g.
#[inline(always)]
pub(crate) fn for_outputs(at: Corner, factor: f32) -> (f32, f32) {
    (warp::shuffle(factor, 8 * at.t), warp::shuffle(factor, 8 * at.t + 4))
}

/// The scores of the lane's 8 tokens: of head `g` (`half` = 0) or `g + 8` (1), or of head `g` as the sum of both rows.
/// Tokens outside `first..position` score -∞.
#[inline(always)]
pub(crate) fn of_lane<const WIDE: bool>(
    scores: &Scores,
    half: usize,
    token: u32,
    first: u32,
    position: u32,
) -> [f32; 8] {
    let mut s = [f32::NEG_INFINITY; 8];
    unroll!(for I in 0..8 {
        let c = scores[I / 2];
        let value = if !WIDE {
            c[I % 2] + c[2 + I % 2]
        } else if half == 0 {
            c[I % 2]
        } else {
            c[2 + I % 2]
        };
        let at = token + I as u32;
        s[I] = if at >= first && at < position {
            value
        } else {
            f32::NEG_INFINITY
        };
    });
    s
}
