//! Sixteen rows of a tiled matrix times a vector of each sequence, by one block.
//!
//! As for [one sequence](crate::decode::rows), the warps share the columns, and all tiles are on the way to shared memory
//! before the wait. A warp then takes four sequences at a time ([`Fourfold`]). The sums of a sequence meet in a place of their
//! own, and one warp finishes them.

use super::Streams;
use super::four::{Columns, Fourfold};
use crate::decode::meeting::Meeting;
use crate::decode::residual::Squares;
use crate::decode::rows::Place;
use crate::tile::Stage;
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// A block's work: a row group, and the vectors that it is multiplied with.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub at: Place,
    /// The group's tiles.
    pub tiles: *const u8,
    /// The vectors, one behind the other, 256 columns for each of the place's blocks.
    pub x: *const f32,
    /// The largest magnitude of every 16 columns of them, for [`run`](Self::run) with `PEAKED`.
    pub peaks: *const f32,
    pub sequences: u32,
}

impl Work {
    /// Where the sums of sequence `sequence` meet.
    #[inline(always)]
    fn meeting(&self, sequence: u32) -> Meeting {
        Meeting::at(sequence * Meeting::bytes(self.at.warps), self.at.warps)
    }

    /// Multiplies, after the wait, and calls `finish(sequence, sum, early)` for the sum of row `lane % 16`, in one warp a
    /// sequence; `early(sequence)` has been called behind the wait, so that what it loads is there.
    ///
    /// # Safety
    /// The group's tiles and the vectors are whole. All threads of the block call this together.
    #[inline(always)]
    pub(super) unsafe fn run<T: Fourfold, const PEAKED: bool, E>(
        self,
        early: impl Fn(u32) -> E,
        finish: impl Fn(u32, f32, E),
    ) {
        let (at, bytes) = (self.at, self.at.blocks * T::BYTES as u32);
        let stage = Stage::at(stage_at(at.warps, self.sequences), bytes);
        // SAFETY: the caller's.
        unsafe {
            if thread::thread_idx_x() == 0 {
                stage.expect(bytes);
            }
            stage.copy(1, bytes, |_| self.tiles);
            thread::sync_threads();
            pdl::launch_dependents();
            pdl::wait();
            let first = early(at.warp);
            self.products::<T, PEAKED>(stage);
            thread::sync_threads();
            let (mut sequence, mut loaded) = (at.warp, first);
            while sequence < self.sequences {
                finish(sequence, self.meeting(sequence).total(at.lane, at.warps), loaded);
                sequence = rolled(sequence + at.warps);
                loaded = early(sequence);
            }
        }
    }

    /// The warp's tiles times its columns of every sequence, four at a time; those that are not there are the last one's.
    #[inline(always)]
    unsafe fn products<T: Fourfold, const PEAKED: bool>(self, stage: Stage) {
        let (at, last) = (self.at, self.sequences - 1);
        let (mut first, mut block, mut rows) = (0, at.warp, [0.0; 2]);
        loop {
            let record = |s: u32| ((first + s).min(last) * at.blocks + block) as usize;
            let columns = |s: u32| self.x.wrapping_add(256 * record(s));
            // SAFETY: the caller's.
            let x = unsafe {
                if PEAKED {
                    let peaks = |s: u32| self.peaks.wrapping_add(16 * record(s));
                    Columns::peaked(columns, peaks, at.lane)
                } else {
                    Columns::new(columns, at.lane)
                }
            };
            stage.wait();
            let part = stage.tile::<T>(block, at.lane).times(&x, at.lane);
            rows = [rows[0] + part[0], rows[1] + part[1]];
            block = rolled(block + at.warps);
            if block >= at.blocks {
                let sequence = first + (at.lane & 3);
                if sequence < self.sequences {
                    put(sequence * Meeting::bytes(at.warps), at, rows);
                }
                (first, block, rows) = (rolled(first + 4), at.warp, [0.0; 2]);
                if first > last {
                    return;
                }
            }
        }
    }
}

/// Leaves the warp's sums of rows g and g + 8 in the [`Meeting`] at `offset`, where other lanes may have another one's.
#[inline(always)]
pub(super) fn put(offset: u32, at: Place, rows: [f32; 2]) {
    let sums = shared::dynamic(offset, 16 * at.warps);
    let row = at.warp * 16 + (at.lane >> 2);
    sums.store(row, rows[0]);
    sums.store(row + 8, rows[1]);
}

/// The squares of the stream of sequence `sequence` on their way, where there is one.
///
/// # Safety
/// There are streams for `sequences` sequences, of `columns` columns.
#[inline(always)]
pub(super) unsafe fn squares(streams: &Streams, columns: u32, sequence: u32, sequences: u32, lane: u32) -> Squares {
    if sequence < sequences {
        // SAFETY: the caller's.
        unsafe { streams.of(columns, sequence).squares(columns, lane) }
    } else {
        Squares::NONE
    }
}

/// Where the stage lies.
#[inline(always)]
const fn stage_at(warps: u32, sequences: u32) -> u32 {
    (sequences * Meeting::bytes(warps)).next_multiple_of(16)
}

/// Shared memory of a block of `warps` warps for tiles of one of `kinds`, `blocks` of them.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn shared_bytes(warps: u32, blocks: u32, sequences: u32, kinds: impl IntoIterator<Item = u32>) -> u32 {
    stage_at(warps, sequences) + Stage::HEAD + blocks * crate::decode::rows::largest_tile(kinds)
}
