//! Splits of a key head that are one cluster: their parts meet in shared memory, and nothing goes through the workspace.
//!
//! Of `active` splits with work, block `h % active` adds up query head h. Each split sends it the head's row and its
//! (max, sum), and the head's barrier there counts the bytes. The sums run in the order of the splits, as anywhere.

use super::combine::{Partial, add, factors, times};
use super::meet::PARTS;
use super::{Arguments, Block};
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// Blocks of a cluster at most: what every GPU that has clusters allows.
pub(super) const MOST: u32 = 8;

/// Splits with work: one at least, said so that a division by it brings no panic with it.
#[inline(always)]
fn active<const HD: u32>(block: &Block<HD>) -> u32 {
    block.share.active.max(1)
}

/// Where what other blocks send arrives.
#[derive(Clone, Copy)]
pub(super) struct Near<const HD: u32, const GROUPS: usize> {
    /// A barrier for each head.
    signals: Shared<u64>,
    /// (max, sum) of each head that the block adds up, and each split.
    parts: Shared<F32x2>,
    /// Their rows.
    rows: Shared<F32x4>,
}

impl<const HD: u32, const GROUPS: usize> Near<HD, GROUPS> {
    const HEADS: u32 = 8 * GROUPS as u32;
    /// `⌈heads / active⌉ · active`, at most.
    const PLACES: u32 = Self::HEADS + MOST;

    /// Bytes of shared memory.
    pub(super) const fn bytes() -> u32 {
        Self::HEADS * 8 + Self::PLACES * 8 + Self::PLACES * HD * 4
    }

    /// The part of the shared memory from byte `from` on.
    #[inline(always)]
    pub(super) fn at(from: u32) -> Self {
        let (parts, rows) = (from + Self::HEADS * 8, from + Self::HEADS * 8 + Self::PLACES * 8);
        Self {
            signals: shared::dynamic(from, Self::HEADS),
            parts: shared::dynamic(parts, Self::PLACES),
            rows: shared::dynamic(rows, Self::PLACES * HD / 4),
        }
    }

    /// Says what the block expects, and that it is there; each of the cluster's blocks, also those without work, does,
    /// and then [waits](cluster::wait) before it sends or ends.
    #[inline(always)]
    pub(super) fn open(self, block: &Block<HD>) {
        let (head, active) = (thread::thread_idx_x(), active(block));
        if head < block.group && head % active == block.split {
            let signal = mbarrier::Barrier::at(self.signals, head);
            signal.init(1);
            mbarrier::fence_init();
            signal.arrive_expect(active * (HD * 4 + 8));
        }
        warp::sync();
        cluster::arrive_relaxed();
    }

    /// Sends vector `at` of head `head`'s row, and from the first lane its maximum and sum, to the block that adds it up.
    #[inline(always)]
    pub(super) fn send(self, block: &Block<HD>, head: u32, at: u32, row: F32x4, part: Partial) {
        let active = active(block);
        let (i, to) = (head / active, head % active);
        let (place, signal) = (
            i * active + block.split,
            mbarrier::Barrier::at(self.signals, head).in_block(to),
        );
        self.rows.in_block(to).store_async(place * (HD / 4) + at, row, signal);
        if at == 0 {
            self.parts
                .in_block(to)
                .store_async(place, F32x2([part.max, part.sum]), signal);
        }
    }

    /// Adds up the heads that are this block's, a warp one of them, and writes them to the output, or to the cluster's part of it.
    ///
    /// # Safety
    /// As the kernel; every split with work has sent its parts, or will.
    #[inline(always)]
    pub(super) unsafe fn collect<const MEET: u32>(self, a: &Arguments, block: &Block<HD>) {
        let active = active(block);
        let mut i = block.warp;
        while block.split + active * i < block.group {
            let head = block.split + active * i;
            mbarrier::Barrier::at(self.signals, head).wait_cluster(0);
            let row = block.kv_head * block.group + head;
            let to = a.out.wrapping_add((row * HD) as usize).cast();
            // SAFETY: the output has the row.
            unsafe {
                let sum = self.head::<MEET>(active, i * active, block.lane, to);
                if MEET == PARTS && block.lane == 0 {
                    a.mark(row, sum);
                }
            }
            i = rolled(i + block.warps);
        }
    }

    /// Adds up the `active` parts from place `first` on; returns the row's maximum and sum.
    #[inline(always)]
    unsafe fn head<const MEET: u32>(self, active: u32, first: u32, lane: u32, to: *mut F32x4) -> Partial {
        let mut parts = [Partial::NONE; 9];
        unroll!(for S in 0..8 {
            if (S as u32) < active {
                let F32x2([max, sum]) = self.parts.load(first + S as u32);
                parts[S] = Partial { max, sum };
            }
        });
        let (factors, sum) = factors(&parts);
        let scale = if MEET == PARTS { 1.0 } else { float::rcp_approx(sum.sum) };
        let mut at = lane;
        while at < HD / 4 {
            let mut out = F32x4([0.0; 4]);
            unroll!(for S in 0..8 {
                if (S as u32) < active {
                    out = add(out, factors[S], self.rows.load((first + S as u32) * (HD / 4) + at));
                }
            });
            // SAFETY: the row's vector.
            unsafe { global::store(to.add(at as usize), times(out, scale)) };
            at += 32;
        }
        sum
    }
}
