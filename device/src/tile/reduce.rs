//! From lanes to rows: sums over the lanes of a quad, then over the warps of a block, in a fixed order.

use cuda_std::prelude::*;

/// The sum over the four lanes that share rows g and g + 8. All lanes of the warp call this together.
#[inline(always)]
pub fn quad_sum(part: f32) -> f32 {
    let pair = part + warp::shuffle_xor(part, 1);
    pair + warp::shuffle_xor(pair, 2)
}

/// Shared memory in which up to [`RowSums::WARPS`] warps meet: 16 row sums of each.
#[derive(Clone, Copy)]
pub struct RowSums(Shared<f32>);

impl RowSums {
    /// Warps that can take part.
    pub const WARPS: u32 = 8;
    /// Bytes of shared memory.
    pub const BYTES: u32 = Self::WARPS * 16 * 4;

    /// Takes [`Self::BYTES`] bytes at `byte_offset` of the dynamic shared memory.
    #[inline(always)]
    pub fn at(byte_offset: u32) -> Self {
        Self(shared::dynamic(byte_offset, Self::WARPS * 16))
    }

    /// Zeroes the sums of warps that the block does not have, so that [`total`](Self::total) can add all eight.
    #[inline(always)]
    pub fn clear_absent(self, warps: u32, thread: u32) {
        let mut i = warps * 16 + thread;
        while i < Self::WARPS * 16 {
            self.0.store(i, 0.0);
            i += warps * 32;
        }
    }

    /// Stores a warp's sums: `rows` are rows g and g + 8, already summed over the quad.
    #[inline(always)]
    pub fn put(self, rows: [f32; 2], warp: u32, lane: u32) {
        if lane & 3 == 0 {
            let at = warp * 16 + (lane >> 2);
            self.0.store(at, rows[0]);
            self.0.store(at + 8, rows[1]);
        }
    }

    /// The sum of row `row` over all warps; call it behind a barrier.
    #[inline(always)]
    pub fn total(self, row: u32) -> f32 {
        let of = |warp: u32| self.0.load(warp * 16 + row);
        ((of(0) + of(1)) + (of(2) + of(3))) + ((of(4) + of(5)) + (of(6) + of(7)))
    }
}
