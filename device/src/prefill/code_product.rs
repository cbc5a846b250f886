//! Tiles of codes times up to 32 tokens: IQ4_NL, IQ4_XS, MXFP4 and NVFP4, without rounding a weight.
//!
//! As [`product`](super::product) has it: what enters A are the steps that codes stand for, integers that f16 holds exactly;
//! scales are f32 factors of exactly weighted sums.

use super::block_product::{block_of, scales_of};
use super::product::{Product, Sums, THOUSAND, Tokens};
use crate::num::half;
use crate::tile::codes::{Book, Codes, FP4, IQ4, power_of_two};
use crate::tile::nvfp4::{SCALE, numbers};
use crate::tile::{Iq4NlTile, Iq4XsTile, Mxfp4Tile, Nvfp4Tile, Tile};
use cuda_std::prelude::*;

/// The steps of bytes 0 and 2 (`at` is 0) or 1 and 3 (8) of word `k`, from the magnitudes of positive and negative ones.
#[inline(always)]
fn steps(signs: [[u32; 4]; 2], k: usize, at: u32) -> u32 {
    let raised = |sign: usize| half2::F16x2(signs[sign][k] >> at & 0x00ff_00ff | THOUSAND);
    raised(0).sub(raised(1)).0
}

/// The A operands of sub-block `J` of 32 columns.
#[inline(always)]
fn operands<const J: usize>(codes: &Codes, book: Book) -> [[u32; 4]; 2] {
    let signs = codes.operands(book, J / 2)[J % 2];
    let half = |h: usize| {
        let (g, u) = (2 * h, 2 * h + 1);
        [
            steps(signs, g, 0),
            steps(signs, u, 0),
            steps(signs, g, 8),
            steps(signs, u, 8),
        ]
    };
    [half(0), half(1)]
}

/// `word` of the lane that has sub-blocks J mod 4 and J mod 4 + 4 of the same rows.
#[inline(always)]
pub(super) fn of_block<const J: usize>(word: u32, lane: u32) -> u32 {
    warp::shuffle(word, (lane & 28) | (J as u32 % 4))
}

impl Product for Iq4NlTile {
    #[inline(always)]
    unsafe fn times<const NT: usize>(&self, tokens: &Tokens, block: u32, sums: &mut Sums, lane: u32) {
        unroll!(for J in 0..8 {
            let d = scales_of::<J>(self.scales, lane);
            // SAFETY: the caller's.
            unsafe { block_of::<J, NT>(operands::<J>(&self.codes, IQ4), d, tokens, block, sums) };
        });
    }
}

impl Product for Mxfp4Tile {
    #[inline(always)]
    unsafe fn times<const NT: usize>(&self, tokens: &Tokens, block: u32, sums: &mut Sums, lane: u32) {
        unroll!(for J in 0..8 {
            let exponents = of_block::<J>(self.exponents, lane) >> (8 * (J as u32 / 4));
            let d = [power_of_two(exponents & 255), power_of_two(exponents >> 16 & 255)];
            // SAFETY: the caller's.
            unsafe { block_of::<J, NT>(operands::<J>(&self.codes, FP4), d, tokens, block, sums) };
        });
    }
}

impl Product for Iq4XsTile {
    #[inline(always)]
    unsafe fn times<const NT: usize>(&self, tokens: &Tokens, block: u32, sums: &mut Sums, lane: u32) {
        let d = self.scales(lane);
        unroll!(for J in 0..8 {
            let header = of_block::<J>(self.header, lane) >> (6 * (J as u32 / 4));
            let scale = |at: u32| ((header >> at & 63) as i32 - 32) as f32;
            let d = [d[0] * scale(0), d[1] * scale(12)];
            // SAFETY: the caller's.
            unsafe { block_of::<J, NT>(operands::<J>(&self.codes, IQ4), d, tokens, block, sums) };
        });
    }
}

impl Nvfp4Tile {
    /// The A operand of sub-block 2J + B of 16 columns.
    #[inline(always)]
    fn operand<const J: usize, const B: usize>(&self) -> [u32; 4] {
        let (a, pair) = (2 * (J / 4) + B, J % 4);
        let signs = self.codes.operands(FP4, a)[pair / 2];
        let (g, u) = (2 * (pair % 2), 2 * (pair % 2) + 1);
        [
            steps(signs, g, 0),
            steps(signs, u, 0),
            steps(signs, g, 8),
            steps(signs, u, 8),
        ]
    }
}

impl Product for Nvfp4Tile {
    #[inline(always)]
    unsafe fn times<const NT: usize>(&self, tokens: &Tokens, block: u32, sums: &mut Sums, lane: u32) {
        let scales = [numbers(self.scales[0]), numbers(self.scales[1])];
        unroll!(for J in 0..8 {
            let a = [self.operand::<J, 0>(), self.operand::<J, 1>()];
            let of_rows = [of_block::<J>(scales[0], lane), of_block::<J>(scales[1], lane)];
            // Seven bits of the byte, from the top of an f16's exponent on.
            let scale = |r: usize, b: u32| SCALE * half((of_rows[r] >> (8 * (2 * (J as u32 / 4) + b)) & 255) << 7);
            let scale = [[scale(0, 0), scale(1, 0)], [scale(0, 1), scale(1, 1)]];
            // Or the activations of all sub-blocks would be in registers at once.
            warp::sync();
            unroll!(for N in 0..4 {
                if N < NT {
                    // SAFETY: the caller's.
                    let (hi, lo) = unsafe { tokens.operands(N, block, J) };
                    unroll!(for B in 0..2 {
                        let c = mma::m16n8k16_f16(a[B], [hi[2 * B], hi[2 * B + 1]], [0.0; 4]);
                        let c = mma::m16n8k16_f16(a[B], [lo[2 * B], lo[2 * B + 1]], c);
                        unroll!(for I in 0..4 {
                            sums[N][I] = float::fma(scale[B][I / 2], c[I], sums[N][I]);
                        });
                    });
                }
            });
        });
    }
}
