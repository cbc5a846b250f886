//! Tiles of Q2_K and Q3_K times up to 32 tokens, without rounding a weight.
//!
//! As [`product`](super::product) has it: what enters A are integers with the scales of their 16 columns, which f16 holds
//! exactly: of Q2_K `scale·q` (at most 15·3) and, in products of their own, minimums; of Q3_K `(scale − 32)·(q − 4)` (at
//! most 32·4). The block's scales are f32 factors of the sums.

use super::code_product::of_block;
use super::product::{Product, Sums, THOUSAND, Tokens, ZERO, add, whole};
use crate::num::half;
use crate::tile::{Q2KTile, Q3KTile, Tile};
use cuda_std::prelude::*;

/// The same small integer twice.
#[inline(always)]
fn twice(small: u32) -> half2::F16x2 {
    whole(small * 0x1_0001)
}

impl Q2KTile {
    /// The A operand `scale·q` of sub-block 2J + B of 16 columns, whose scales are `s` of row g and of row g + 8.
    #[inline(always)]
    fn operand<const J: usize, const B: usize>(&self, s: [half2::F16x2; 2]) -> [u32; 4] {
        let (a, pair) = (2 * (J / 4) + B, J % 4);
        let (vector, shift) = (self.low.0[a / 2], (4 * (a % 2) + 2 * (pair / 2)) as u32);
        let two = |r: usize, at: u32| {
            let word = vector[2 * (pair % 2) + r] >> (shift + at);
            whole(word & 0x0003_0003).mul(s[r]).0
        };
        [two(0, 0), two(1, 0), two(0, 8), two(1, 8)]
    }
}

impl Product for Q2KTile {
    #[inline(always)]
    unsafe fn times<const NT: usize>(&self, tokens: &Tokens, block: u32, sums: &mut Sums, lane: u32) {
        let (mut dots, mut mins) = (ZERO, ZERO);
        unroll!(for J in 0..8 {
            let of_rows = [of_block::<J>(self.scales[0], lane), of_block::<J>(self.scales[1], lane)];
            let nibble = |r: usize, b: u32, at: u32| twice(of_rows[r] >> (8 * (2 * (J as u32 / 4) + b) + at) & 15);
            let scale = |b: u32| [nibble(0, b, 0), nibble(1, b, 0)];
            let min = |b: u32| {
                let (g, u) = (nibble(0, b, 4).0, nibble(1, b, 4).0);
                [g, u, g, u]
            };
            let a = [self.operand::<J, 0>(scale(0)), self.operand::<J, 1>(scale(1))];
            let m = [min(0), min(1)];
            // Or the activations of all sub-blocks would be in registers at once.
            warp::sync();
            unroll!(for N in 0..4 {
                if N < NT {
                    // SAFETY: the caller's.
                    let x = unsafe { tokens.operands(N, block, J) };
                    dots[N] = add(a, x, dots[N]);
                    mins[N] = add(m, x, mins[N]);
                }
            });
        });
        let scales = [0, 1].map(|r: usize| (half(self.row_scales[r] & 0xffff), half(self.row_scales[r] >> 16)));
        unroll!(for N in 0..4 {
            if N < NT {
                unroll!(for I in 0..4 {
                    let (d, dmin) = scales[I / 2];
                    let part = float::fma(-dmin, mins[N][I], sums[N][I]);
                    sums[N][I] = float::fma(d, dots[N][I], part);
                });
            }
        });
    }
}

impl Q3KTile {
    /// The value of each byte of the word of row g + 8·r, columns of half `half`, of product `u` of accumulator `a`.
    #[inline(always)]
    fn value(&self, (a, u): (usize, usize), half: usize, r: usize) -> u32 {
        let k = 2 * half + r;
        if a < 3 {
            self.values[a][k] >> (3 * u) & 0x0707_0707
        } else {
            (self.values[u][k] >> 6 & 0x0303_0303) << 1 | self.values[2][k] >> (6 + u) & 0x0101_0101
        }
    }

    /// The A operand `(scale − 32)·(q − 4)` of sub-block 2J + B of 16 columns, whose scales are `s`, of row g and of row g + 8.
    #[inline(always)]
    fn operand<const J: usize, const B: usize>(&self, s: [half2::F16x2; 2]) -> [u32; 4] {
        let (a, pair) = (2 * (J / 4) + B, J % 4);
        // 1024 and the 4 that stands for 0.
        let zero = half2::F16x2(THOUSAND + 0x4_0004);
        let two = |r: usize, at: u32| {
            let bytes = self.value((a, pair / 2), pair % 2, r) >> at & 0x0007_0007;
            half2::F16x2(bytes | THOUSAND).sub(zero).mul(s[r]).0
        };
        [two(0, 0), two(1, 0), two(0, 8), two(1, 8)]
    }
}

impl Product for Q3KTile {
    #[inline(always)]
    unsafe fn times<const NT: usize>(&self, tokens: &Tokens, block: u32, sums: &mut Sums, lane: u32) {
        let (d, scales, mut dots) = (self.scales(lane), self.sub_scales(lane), ZERO);
        unroll!(for J in 0..8 {
            let of_rows = [of_block::<J>(scales[0], lane), of_block::<J>(scales[1], lane)];
            // A signed byte and 128, on top of 1024, less 1152.
            let scale = |r: usize, b: u32| {
                let byte = (of_rows[r] >> (8 * (2 * (J as u32 / 4) + b)) ^ 128) & 255;
                half2::F16x2((byte * 0x1_0001) | THOUSAND).sub(half2::F16x2(0x6480_6480))
            };
            let a = [
                self.operand::<J, 0>([scale(0, 0), scale(1, 0)]),
                self.operand::<J, 1>([scale(0, 1), scale(1, 1)]),
            ];
            // Or the activations of all sub-blocks would be in registers at once.
            warp::sync();
            unroll!(for N in 0..4 {
                if N < NT {
                    // SAFETY: the caller's.
                    dots[N] = add(a, unsafe { tokens.operands(N, block, J) }, dots[N]);
                }
            });
        });
        unroll!(for N in 0..4 {
            if N < NT {
                unroll!(for I in 0..4 {
                    sums[N][I] = float::fma(d[I / 2], dots[N][I], sums[N][I]);
                });
            }
        });
    }
}
