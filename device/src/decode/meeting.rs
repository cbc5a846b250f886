//! Where the warps of a block meet: partial sums of 16 rows each, added in the order of the warps.

use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// Partial sums of 16 rows of each warp of a block.
#[derive(Clone, Copy)]
pub struct Meeting(Shared<f32>);

impl Meeting {
    /// Bytes of shared memory for `warps` warps.
    #[must_use]
    pub const fn bytes(warps: u32) -> u32 {
        warps * 16 * 4
    }

    /// At `offset` bytes into dynamic shared memory, a multiple of 4.
    #[inline(always)]
    pub fn at(offset: u32, warps: u32) -> Self {
        Self(shared::dynamic(offset, 16 * warps))
    }

    /// Leaves a warp's sums: the lane's part of rows `g` and `g + 8`. All lanes of the warp call this together.
    #[inline(always)]
    pub fn put(self, part: [f32; 2], warp: u32, lane: u32) {
        let (u, v) = (
            part[0] + warp::shuffle_xor(part[0], 1),
            part[1] + warp::shuffle_xor(part[1], 1),
        );
        let (u, v) = (u + warp::shuffle_xor(u, 2), v + warp::shuffle_xor(v, 2));
        if lane & 3 == 0 {
            let at = warp * 16 + (lane >> 2);
            self.0.store(at, u);
            self.0.store(at + 8, v);
        }
    }

    /// The sum of row `lane % 16` over all warps, in every lane of one warp that calls this behind a barrier: the two
    /// halves of the warp take the even and the odd warps.
    #[inline(always)]
    pub fn total(self, lane: u32, warps: u32) -> f32 {
        let rows = self.0;
        over_warps(lane, warps, |warp| rows.load(warp * 16 + (lane & 15)))
    }
}

/// Σ of `f(warp)`, even warps in the lower half of the lanes and odd ones in the upper, four loads at a time.
#[inline(always)]
fn over_warps(lane: u32, warps: u32, f: impl Fn(u32) -> f32) -> f32 {
    let mut warp = lane >> 4;
    let mut sum = 0.0;
    while warp < warps {
        let mut four = [0.0; 4];
        unroll!(for I in 0..4 {
            if warp + 2 * (I as u32) < warps {
                four[I] = f(warp + 2 * I as u32);
            }
        });
        sum += (four[0] + four[1]) + (four[2] + four[3]);
        warp = rolled(warp + 8);
    }
    sum + warp::shuffle_xor(sum, 16)
}
