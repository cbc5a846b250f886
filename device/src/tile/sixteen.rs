//! Products of types with a scale for each 16 columns: the sub-blocks of a tile as the accumulators take them.
//!
//! Accumulator a = 0…3 takes two products (u = 0, 1), whose two k-halves meet activations of their own column pairs. So
//! lane `(g, t)` ends with the sums of sub-block `8·(a/2) + 2t + a mod 2`, and `t / 2` says which product it came from.

use super::{difference, wide};
use crate::tile::Activation;
use cuda_std::prelude::*;

/// The B operands of the two products of accumulator `a`.
#[inline(always)]
fn columns(x: &Activation, a: usize, lane: u32) -> [[u32; 2]; 2] {
    let (word, pair) = (x.words[a], lane >> 3);
    // Arithmetic, not four branches: those would become a jump table.
    let only = |p: u32| word & u32::from(pair == p).wrapping_neg();
    [[only(0), only(1)], [only(2), only(3)]]
}

/// Sums of accumulator `a` from the A operands of its products, signed bytes: rows g and g + 8 of the lane's sub-block.
/// All lanes of the warp call this together.
#[inline(always)]
pub(super) fn sums(operands: [[u32; 4]; 2], x: &Activation, a: usize, lane: u32) -> [i32; 2] {
    let columns = columns(x, a, lane);
    let c = mma::m16n8k32_s8(operands[0], columns[0], [0; 4]);
    wide(mma::m16n8k32_s8(operands[1], columns[1], c))
}

/// As [`sums`], of magnitudes: what the positive steps give less what the negative ones do.
#[inline(always)]
pub(super) fn differences(operands: [[[u32; 4]; 2]; 2], x: &Activation, a: usize, lane: u32) -> [i32; 2] {
    let columns = columns(x, a, lane);
    let of = |[first, second]: [[u32; 4]; 2]| {
        mma::m16n8k32_s8(second, columns[1], mma::m16n8k32_s8(first, columns[0], [0; 4]))
    };
    difference([of(operands[0]), of(operands[1])])
}

/// As [`sums`], of unsigned bytes.
#[inline(always)]
pub(super) fn unsigned_sums(operands: [[u32; 4]; 2], x: &Activation, a: usize, lane: u32) -> [i32; 2] {
    let columns = columns(x, a, lane);
    let c = mma::m16n8k32_u8_s8(operands[0], columns[0], [0; 4]);
    wide(mma::m16n8k32_u8_s8(operands[1], columns[1], c))
}

/// The activations with Σ x over the lane's sub-block of each accumulator: products with ones give those of even
/// accumulators, what lacks to the 32 columns' sums those of odd ones. All lanes of the warp call this together.
#[inline(always)]
pub(super) fn with_sums(x: Activation, lane: u32) -> Activation {
    let ones = [[0x0101_0101; 4]; 2];
    let ([first, _], [second, _]) = (sums(ones, &x, 0, lane), sums(ones, &x, 2, lane));
    Activation {
        fine: [first, x.sums[0] - first, second, x.sums[1] - second],
        ..x
    }
}
