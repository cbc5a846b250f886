//! The products of the types whose tiles hold nibbles, with or without a fifth bit.

use super::{only, wide};
use crate::tile::{Activation, Source};
use cuda_std::prelude::*;

/// A lane's nibbles, and its fifth bits: bit j of each byte belongs to sub-block j (zero for four-bit types).
#[derive(Clone, Copy)]
pub(crate) struct Nibbles {
    pub quants: [[u32; 4]; 4],
    pub fifth: [u32; 4],
}

impl Nibbles {
    pub const ZERO: Self = Self {
        quants: [[0; 4]; 4],
        fifth: [0; 4],
    };

    /// Loads four vectors from the start of a tile.
    ///
    /// # Safety
    /// `tile` is a whole tile, aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the tile.
        let vector = |j: usize| unsafe { tile.vector(512 * j, lane) };
        Self {
            quants: [vector(0), vector(1), vector(2), vector(3)],
            fifth: [0; 4],
        }
    }

    /// The A operand of sub-block `SUB`, fifth bits and all: unsigned bytes.
    #[inline(always)]
    fn operand<const SUB: u32>(&self) -> [u32; 4] {
        let four = |k: usize| {
            let word = self.quants[SUB as usize / 2][k];
            (word >> (4 * (SUB & 1))) & 0x0f0f_0f0f | ((self.fifth[k] >> SUB) & 0x0101_0101) << 4
        };
        [four(0), four(1), four(2), four(3)]
    }

    /// Σ q·x of the lane's sub-blocks t and t + 4: rows g and g + 8 of each. All lanes of the warp call this together.
    #[inline(always)]
    pub fn sums<const FIVE: bool>(&self, x: &Activation, lane: u32) -> [[i32; 2]; 2] {
        let (first, second) = ([x.words[0], x.words[1]], [x.words[2], x.words[3]]);
        if FIVE {
            return self.sums_of_five(first, second, lane);
        }
        [
            self.sums_of_four::<0>(first, lane),
            self.sums_of_four::<2>(second, lane),
        ]
    }

    /// Of two vectors from `FIRST` on, whose bytes hold the nibbles of two sub-blocks each, so that they meet the
    /// activations of two column pairs: the bytes as they are, and the bytes without their low nibbles. An even pair's
    /// low nibbles are what the second sum lacks; an odd pair's high ones are the second sum, 16 times too large. So
    /// nothing but the low nibbles must be masked, and each activation once.
    #[inline(always)]
    fn sums_of_four<const FIRST: usize>(&self, x: [u32; 2], lane: u32) -> [i32; 2] {
        let high = |j: usize| self.quants[j].map(|word| word & 0xf0f0_f0f0);
        let half = |upper: bool| if (lane >= 16) == upper { x } else { [0, 0] };
        let (lower, upper) = (half(false), half(true));
        let bytes = mma::m16n8k32_u8_s8(self.quants[FIRST], lower, [0; 4]);
        let highs = mma::m16n8k32_u8_s8(high(FIRST), lower, [0; 4]);
        let bytes = mma::m16n8k32_u8_s8(self.quants[FIRST + 1], upper, bytes);
        let highs = mma::m16n8k32_u8_s8(high(FIRST + 1), upper, highs);
        let odd = lane & 1;
        let (sign, even) = (2 * odd as i32 - 1, 1 - odd as i32);
        let (bytes, highs) = (wide(bytes), wide(highs));
        [0, 1].map(|r: usize| (highs[r] * sign + bytes[r] * even) >> (4 * odd))
    }

    #[inline(always)]
    fn sums_of_five(&self, first: [u32; 2], second: [u32; 2], lane: u32) -> [[i32; 2]; 2] {
        let c = mma::m16n8k32_u8_s8(self.operand::<0>(), only(lane, 0, first), [0; 4]);
        let c = mma::m16n8k32_u8_s8(self.operand::<1>(), only(lane, 1, first), c);
        let c = mma::m16n8k32_u8_s8(self.operand::<2>(), only(lane, 2, first), c);
        let c = mma::m16n8k32_u8_s8(self.operand::<3>(), only(lane, 3, first), c);
        let e = mma::m16n8k32_u8_s8(self.operand::<4>(), only(lane, 0, second), [0; 4]);
        let e = mma::m16n8k32_u8_s8(self.operand::<5>(), only(lane, 1, second), e);
        let e = mma::m16n8k32_u8_s8(self.operand::<6>(), only(lane, 2, second), e);
        let e = mma::m16n8k32_u8_s8(self.operand::<7>(), only(lane, 3, second), e);
        [wide(c), wide(e)]
    }
}
