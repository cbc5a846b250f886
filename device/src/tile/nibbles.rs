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

    /// The A operand of sub-block `SUB`: unsigned bytes. Without a fifth bit those of odd sub-blocks are 16 times their
    /// nibbles, which saves shifting them down: [`sums`](Self::sums) shifts the few results instead.
    #[inline(always)]
    fn operand<const FIVE: bool, const SUB: u32>(&self) -> [u32; 4] {
        let four = |k: usize| {
            let word = self.quants[SUB as usize / 2][k];
            if FIVE {
                (word >> (4 * (SUB & 1))) & 0x0f0f_0f0f | ((self.fifth[k] >> SUB) & 0x0101_0101) << 4
            } else {
                word & (0x0f0f_0f0f << (4 * (SUB & 1)))
            }
        };
        [four(0), four(1), four(2), four(3)]
    }

    /// Σ q·x of the lane's sub-blocks t and t + 4: rows g and g + 8 of each. All lanes of the warp call this together.
    #[inline(always)]
    pub fn sums<const FIVE: bool>(&self, x: &Activation, lane: u32) -> [[i32; 2]; 2] {
        let (first, second) = ([x.words[0], x.words[1]], [x.words[2], x.words[3]]);
        let c = mma::m16n8k32_u8_s8(self.operand::<FIVE, 0>(), only(lane, 0, first), [0; 4]);
        let c = mma::m16n8k32_u8_s8(self.operand::<FIVE, 1>(), only(lane, 1, first), c);
        let c = mma::m16n8k32_u8_s8(self.operand::<FIVE, 2>(), only(lane, 2, first), c);
        let c = mma::m16n8k32_u8_s8(self.operand::<FIVE, 3>(), only(lane, 3, first), c);
        let e = mma::m16n8k32_u8_s8(self.operand::<FIVE, 4>(), only(lane, 0, second), [0; 4]);
        let e = mma::m16n8k32_u8_s8(self.operand::<FIVE, 5>(), only(lane, 1, second), e);
        let e = mma::m16n8k32_u8_s8(self.operand::<FIVE, 6>(), only(lane, 2, second), e);
        let e = mma::m16n8k32_u8_s8(self.operand::<FIVE, 7>(), only(lane, 3, second), e);
        let (c, e) = (wide(c), wide(e));
        if FIVE {
            return [c, e];
        }
        // The lane's sub-blocks t and t + 4 are both even or both odd.
        let shift = 4 * (lane & 1);
        [[c[0] >> shift, c[1] >> shift], [e[0] >> shift, e[1] >> shift]]
    }
}
