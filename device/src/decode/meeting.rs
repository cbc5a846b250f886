//! Where the warps of a block meet: partial sums of 16 rows each, added in the order of the warps.

use cuda_std::prelude::*;
use cuda_std::unroll::stepped;

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
        // Lanes with odd t add up row g + 8, those with even t row g: each gives the other what it does not keep.
        let odd = lane & 1 != 0;
        let (keep, give) = if odd { (part[1], part[0]) } else { (part[0], part[1]) };
        let pair = keep + warp::shuffle_xor(give, 1);
        let sum = pair + warp::shuffle_xor(pair, 2);
        if lane & 2 == 0 {
            self.0.store(warp * 16 + 8 * (lane & 1) + (lane >> 2), sum);
        }
    }

    /// What warp `warp` left of row `lane % 16`, behind a barrier.
    #[inline(always)]
    pub fn part(self, warp: u32, lane: u32) -> f32 {
        self.0.load(warp * 16 + (lane & 15))
    }

    /// The sum of row `lane % 16` over all warps, in every lane of one warp that calls this behind a barrier: the two
    /// halves of the warp take the even and the odd warps.
    #[inline(always)]
    pub fn total(self, lane: u32, warps: u32) -> f32 {
        self.total_of::<4>(lane, warps)
    }

    /// [`total`](Self::total) for blocks of about `2 · AT_ONCE` warps: so many loads are under way at the same time.
    /// `AT_ONCE` is a multiple of 4.
    #[inline(always)]
    pub fn total_of<const AT_ONCE: usize>(self, lane: u32, warps: u32) -> f32 {
        let (mut warp, mut sum) = (lane >> 4, 0.0);
        while warp < warps {
            sum += self.some::<AT_ONCE>(warp, lane, Some(warps));
            warp = stepped(warp + 2 * AT_ONCE as u32);
        }
        sum + warp::shuffle_xor(sum, 16)
    }

    /// The same, with a way of its own for just `2 · AT_ONCE` warps: every instruction behind the barrier is on all others'
    /// way, and branches more than any.
    #[inline(always)]
    pub fn total_at_once<const AT_ONCE: usize>(self, lane: u32, warps: u32) -> f32 {
        if warps == 2 * AT_ONCE as u32 {
            let sum = self.some::<AT_ONCE>(lane >> 4, lane, None);
            return sum + warp::shuffle_xor(sum, 16);
        }
        self.total_of::<AT_ONCE>(lane, warps)
    }

    /// The sum of row `lane % 16` over every other warp from `first` on, `AT_ONCE` of them, or those below `warps`.
    #[inline(always)]
    fn some<const AT_ONCE: usize>(self, first: u32, lane: u32, warps: Option<u32>) -> f32 {
        let mut parts = [0.0; AT_ONCE];
        unroll!(for I in 0..AT_ONCE {
            let warp = first + 2 * I as u32;
            if warps.is_none_or(|warps| warp < warps) {
                parts[I] = self.0.load(warp * 16 + (lane & 15));
            }
        });
        unroll!(for I in 0..(AT_ONCE - 4) {
            parts[I % 4] += parts[I + 4];
        });
        (parts[0] + parts[1]) + (parts[2] + parts[3])
    }
}
