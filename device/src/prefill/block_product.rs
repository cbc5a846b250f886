//! Tiles of the types with blocks of 32 times up to 32 tokens, on half-precision tensor cores without rounding a weight.
//!
//! As [`product`](super::product) has it: what enters A are the integers `q − z` of a sub-block, which f16 holds exactly;
//! the block's scale is an f32 factor of their exact sum. Offsets are f16 as they are in the file: one more product a tile,
//! with the sums of the eight sub-blocks.

use super::product::{Product, Row, Sums, THOUSAND, Tokens, add};
use crate::num::half;
use crate::tile::{Q8_0Tile, SmallTile};
use cuda_std::prelude::*;

/// The scales of the lane's rows in sub-block `J`, from words whose halves are those of sub-blocks t and t + 4.
#[inline(always)]
pub(super) fn scales_of<const J: usize>(words: [u32; 2], lane: u32) -> [f32; 2] {
    let of = |word: u32| {
        let word = warp::shuffle(word, (lane & 28) | (J as u32 % 4));
        half(if J < 4 { word & 0xffff } else { word >> 16 })
    };
    [of(words[0]), of(words[1])]
}

/// Adds the product of sub-block `J`, whose A operands are `a`, for each of NT token groups.
///
/// # Safety
/// The tokens' rows have record `block`.
#[inline(always)]
pub(super) unsafe fn block_of<const J: usize, const NT: usize>(
    a: [[u32; 4]; 2],
    d: [f32; 2],
    tokens: &Tokens,
    block: u32,
    sums: &mut Sums,
) {
    // Or the activations of all sub-blocks would be in registers at once.
    warp::sync();
    unroll!(for N in 0..4 {
        if N < NT {
            // SAFETY: the caller's.
            let dots = add(a, unsafe { tokens.operands(N, block, J) }, [0.0; 4]);
            unroll!(for I in 0..4 {
                sums[N][I] = float::fma(d[I / 2], dots[I], sums[N][I]);
            });
        }
    });
}

impl<const FIVE: bool, const OFFSET: bool> SmallTile<FIVE, OFFSET> {
    /// 1024 and the q that stands for 0, in both halves of a pair.
    const ZERO: u32 = if OFFSET {
        THOUSAND
    } else {
        THOUSAND + 0x1_0001 * Self::ZERO_POINT as u32
    };

    /// The A operands q − z of sub-block `J`.
    #[inline(always)]
    fn operands<const J: usize>(&self) -> [[u32; 4]; 2] {
        let zero = half2::F16x2(Self::ZERO);
        let row = |k: usize| Row {
            quants: self.nibbles.quants[J / 2][k],
            shift: 4 * (J as u32 % 2),
            fifth: if FIVE { self.nibbles.fifth[k] >> J } else { 0 },
        };
        let half = |h: usize| {
            let (g, u) = (row(2 * h), row(2 * h + 1));
            let four = [g.raised(0), u.raised(0), g.raised(8), u.raised(8)];
            four.map(|pair| pair.sub(zero).0)
        };
        [half(0), half(1)]
    }
}

impl<const FIVE: bool, const OFFSET: bool> Product for SmallTile<FIVE, OFFSET> {
    #[inline(always)]
    unsafe fn times<const NT: usize>(&self, tokens: &Tokens, block: u32, sums: &mut Sums, lane: u32) {
        // SAFETY: the caller's.
        unsafe {
            unroll!(for J in 0..8 {
                let d = scales_of::<J>(self.scales, lane);
                block_of::<J, NT>(self.operands::<J>(), d, tokens, block, sums);
            });
            if !OFFSET {
                return;
            }
            let [m, k] = self.offsets;
            unroll!(for N in 0..4 {
                if N < NT {
                    let parts = mma::m16n8k16_f16([m, k, m, k], tokens.sums(N, block), [0.0; 4]);
                    unroll!(for I in 0..4 {
                        sums[N][I] = float::fma(32.0, parts[I], sums[N][I]);
                    });
                }
            });
        }
    }
}

impl Q8_0Tile {
    /// The A operands of sub-block `J`.
    #[inline(always)]
    fn operands<const J: usize>(&self) -> [[u32; 4]; 2] {
        // q + 128 on top of 1024, less 1152.
        let zero = half2::F16x2(0x6480_6480);
        let two = |k: usize, at: u32| {
            let bytes = (self.quants[J][k] ^ 0x8080_8080) >> at & 0x00ff_00ff;
            half2::F16x2(bytes | THOUSAND).sub(zero).0
        };
        let half = |h: usize| [two(2 * h, 0), two(2 * h + 1, 0), two(2 * h, 8), two(2 * h + 1, 8)];
        [half(0), half(1)]
    }
}

impl Product for Q8_0Tile {
    #[inline(always)]
    unsafe fn times<const NT: usize>(&self, tokens: &Tokens, block: u32, sums: &mut Sums, lane: u32) {
        unroll!(for J in 0..8 {
            let d = scales_of::<J>(self.scales, lane);
            // SAFETY: the caller's.
            unsafe { block_of::<J, NT>(self.operands::<J>(), d, tokens, block, sums) };
        });
    }
}
