//! Where the warps' sums of a row group meet.
//!
//! A barrier for each row group would keep the warps in step, and totals made by one warp alone would keep the others of the
//! block waiting for it. So sums of several row groups lie side by side until there is one for each of [`GROUPS`] warps,
//! which then make the totals together.

use crate::tile::{RowSums, quad_sum};
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// Row groups that meet at once, if there are as many warps.
const GROUPS: u32 = 4;
/// Bytes of one of the two places.
const PLACE: u32 = GROUPS * RowSums::BYTES;

/// Row groups whose sums wait for others, at the start of dynamic shared memory.
#[derive(Clone, Copy)]
pub struct Meeting {
    /// Offset of their place. The other one is still read.
    place: u32,
    held: u32,
    most: u32,
}

impl Meeting {
    /// Bytes of shared memory.
    pub const BYTES: u32 = 2 * PLACE;

    /// No sums yet. All threads of the block call this.
    #[inline(always)]
    pub fn new(warps: u32) -> Self {
        if warps < RowSums::WARPS {
            let mut at = 0;
            while at < Self::BYTES {
                RowSums::at(at).clear_absent(warps, thread::thread_idx_x());
                at = rolled(at + RowSums::BYTES);
            }
        }
        Self {
            place: 0,
            held: 0,
            most: GROUPS.min(warps),
        }
    }

    /// Adds a warp's sums of the next row group, and says whether it is time for [`totals`](Self::totals), as it also is
    /// behind the last row group. All lanes of the warp call this together.
    #[inline(always)]
    pub fn put(&mut self, rows: [f32; 2], warp: u32, lane: u32) -> bool {
        let sums = RowSums::at(self.place + self.held * RowSums::BYTES);
        sums.put([quad_sum(rows[0]), quad_sum(rows[1])], warp, lane);
        self.held += 1;
        self.held == self.most
    }

    /// Calls `f` with each row and its total, given the row group put last; blocks stride over row groups. All threads
    /// of the block call this.
    #[inline(always)]
    pub fn totals(&mut self, last: u32, warp: u32, lane: u32, f: impl FnOnce(u32, f32)) {
        thread::sync_threads();
        if warp < self.held && lane < 16 {
            let group = last - (self.held - 1 - warp) * thread::grid_dim_x();
            let sums = RowSums::at(self.place + warp * RowSums::BYTES);
            f(group * 16 + lane, sums.total(lane));
        }
        // Nobody writes this place again before the next barrier.
        self.place ^= PLACE;
        self.held = 0;
    }
}
