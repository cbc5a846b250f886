//! Sixteen rows of one tiled matrix, or of two that share their input, times a vector, by one block.
//!
//! The warps of a block are divided among the matrices, those of a matrix among its columns, 256 at a time; tiles are on
//! their way to shared memory before the wait ([`Stage`]), as many as there is room for, and the others are loaded by
//! their warps.

use super::apart::Vector;
use super::matrix::Summed;
use crate::decode::columns::Columns;
use crate::decode::meeting::Meeting;
use crate::tile::Stage;
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// Bytes of tiles of a block that all wait in shared memory: any GPU has room for them.
const ALL_BYTES: u32 = 84 * 1024;

/// Bytes of those that do where there are more: of any GPU's memory, a block has room beside another one.
const STAGE_BYTES: u32 = 48 * 1024;

/// Warps of a matrix at most: few enough that a block finds registers beside two of the launch before.
const MOST_WARPS: u32 = 10;
const _: () = assert!(MOST_WARPS == 10, "`Place::total` adds up five parts a half");

/// A thread's place in a block for `SIDES` matrices.
#[derive(Clone, Copy)]
pub(super) struct Place<const SIDES: usize> {
    pub lane: u32,
    pub warp: u32,
    /// Warps of a matrix.
    pub warps: u32,
    pub columns: u32,
    /// Blocks of 256 columns.
    pub blocks: u32,
}

impl<const SIDES: usize> Place<SIDES> {
    #[inline(always)]
    pub(super) fn new(columns: u32) -> Self {
        Self {
            lane: warp::lane(),
            warp: thread::thread_idx_x() / 32,
            warps: thread::block_dim_x() / (32 * SIDES as u32),
            columns,
            blocks: columns.div_ceil(256),
        }
    }

    /// A sum of squares from each warp of a matrix.
    #[inline(always)]
    pub(super) fn squares(self) -> Shared<f32> {
        shared::dynamic(squares_at(self.warps * SIDES as u32), self.warps)
    }

    /// Where the warps of matrix `side` meet.
    #[inline(always)]
    pub(super) fn meeting(self, side: u32) -> Meeting {
        Meeting::at(side * Meeting::bytes(self.warps), self.warps)
    }

    /// The sum of row `lane % 16` of matrix `side` over its warps, in every lane of the first warp, behind the barrier. No
    /// loop, and so no code to jump over: what runs once behind a wait is slow to fetch.
    #[inline(always)]
    pub(super) fn total(self, side: u32) -> f32 {
        let (meeting, first) = (self.meeting(side), self.lane >> 4);
        let mut parts = [0.0; MOST_WARPS as usize / 2];
        unroll!(for I in 0..5 {
            let warp = first + 2 * I as u32;
            if warp < self.warps {
                parts[I] = meeting.part(warp, self.lane);
            }
        });
        let sum = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + parts[4];
        sum + warp::shuffle_xor(sum, 16)
    }

    /// Tiles of a matrix that wait in shared memory.
    #[inline(always)]
    const fn staged(self, tile_bytes: u32) -> u32 {
        staged::<SIDES>(self.blocks, tile_bytes)
    }

    #[inline(always)]
    fn stage(self, side: u32, bytes: u32) -> Stage {
        Stage::at(
            stage_at(self.warps * SIDES as u32) + side * (Stage::HEAD + bytes),
            bytes,
        )
    }

    /// Sends for `bytes` bytes of the tiles of matrix `side`.
    ///
    /// # Safety
    /// They lie at `from`. All threads of the block call this together.
    #[inline(always)]
    unsafe fn send(self, side: u32, from: *const u8, bytes: u32) {
        let stage = self.stage(side, bytes);
        if thread::thread_idx_x() == 0 {
            stage.expect(bytes);
        }
        // SAFETY: the caller's.
        unsafe { stage.copy(1, bytes, |_| from) };
    }
}

#[inline(always)]
const fn staged<const SIDES: usize>(blocks: u32, tile_bytes: u32) -> u32 {
    let row = SIDES as u32 * tile_bytes;
    if blocks <= ALL_BYTES / row {
        blocks
    } else {
        STAGE_BYTES / row
    }
}

/// Where sums of squares meet.
#[inline(always)]
const fn squares_at(warps: u32) -> u32 {
    Meeting::bytes(warps)
}

/// Where the first stage lies.
#[inline(always)]
const fn stage_at(warps: u32) -> u32 {
    (squares_at(warps) + 4 * warps).next_multiple_of(16)
}

/// The columns as tiles of type `T` take them.
#[inline(always)]
pub(super) fn activation<T: Summed>(x: &Columns, lane: u32) -> crate::tile::Activation {
    if T::SUMS {
        x.fragments::<true>(lane)
    } else {
        x.fragments::<false>(lane)
    }
}

/// Row group `group` of each matrix times `x`, after the wait; leaves the warps' parts in their matrix's meeting. Returns
/// what is known of x, and what `early` loads: called behind the wait, so that it is there when the warps have met.
///
/// # Safety
/// The matrices have the row group; `x` has `256 · blocks` columns. All threads of the block call this together.
#[inline(always)]
pub(super) unsafe fn row_group<T: Summed, V: Vector, E, const SIDES: usize>(
    at: Place<SIDES>,
    tiles: [*const u8; SIDES],
    group: u32,
    x: V,
    early: impl FnOnce() -> E,
) -> (V::Known, E) {
    let (side, first) = if SIDES == 1 || at.warp < at.warps {
        (0, at.warp)
    } else {
        (1, at.warp - at.warps)
    };
    let staged = at.staged(T::BYTES as u32);
    let bytes = staged * T::BYTES as u32;
    let from = tiles.map(|tiles| tiles.wrapping_add(group as usize * at.blocks as usize * T::BYTES));
    let own = if side == 0 { from[0] } else { from[SIDES - 1] };
    // SAFETY: the caller's.
    unsafe {
        at.send(0, from[0], bytes);
        if SIDES > 1 {
            at.send(1, from[SIDES - 1], bytes);
        }
        x.expect(at, first);
        thread::sync_threads();
        pdl::launch_dependents();
        pdl::wait();
        let (mut block, mut rows) = (first, [0.0; 2]);
        let mut known = x.known(at);
        let mut next = x.columns(&mut known, at, block);
        let early = early();
        let mut activation = activation::<T>(&next, at.lane);
        let stage = at.stage(side, bytes);
        stage.wait();
        loop {
            let after = rolled(block + at.warps);
            if after < at.blocks {
                next = x.columns(&mut known, at, after);
            }
            let tile: T = if block < staged {
                stage.tile(block, at.lane)
            } else {
                T::load(own.add(block as usize * T::BYTES), at.lane)
            };
            let part = tile.multiply(tile.scales(at.lane), &activation, at.lane);
            rows = [rows[0] + part[0], rows[1] + part[1]];
            if after >= at.blocks {
                break;
            }
            activation = self::activation::<T>(&next, at.lane);
            block = after;
        }
        at.meeting(side).put(rows, first, at.lane);
        (known, early)
    }
}

/// Warps of a block for `SIDES` matrices of `columns` columns: as few rounds as warps allow, shared evenly.
#[cfg(not(target_arch = "nvptx64"))]
fn warps<const SIDES: usize>(columns: u32) -> u32 {
    let blocks = columns.div_ceil(256).max(1);
    SIDES as u32 * blocks.div_ceil(blocks.div_ceil(MOST_WARPS))
}

/// A launch of `groups` blocks that call [`row_group`] for `SIDES` matrices of `columns` columns, of one of `kinds`.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn config<const SIDES: usize>(
    groups: u32,
    columns: u32,
    kinds: impl IntoIterator<Item = u32>,
) -> cuda_std::launch::LaunchConfig {
    let warps = warps::<SIDES>(columns);
    let bytes = kinds.into_iter().filter_map(super::Kind::numbered).map(|kind| {
        let tile = kind.tile_bytes() as u32;
        Stage::HEAD + tile * staged::<SIDES>(columns.div_ceil(256), tile)
    });
    let shared = stage_at(warps) + SIDES as u32 * bytes.max().unwrap_or(0);
    cuda_std::launch::LaunchConfig::new(groups, 32 * warps)
        .shared(shared)
        .pdl(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_share_rows_evenly() {
        assert_eq!([576, 4864, 14336].map(warps::<1>), [3, 10, 10]);
        assert_eq!([576, 2048, 4096].map(warps::<2>), [6, 16, 16]);
    }

    #[test]
    fn tiles_wait_in_shared_memory_as_far_as_there_is_room() {
        let [q4k, q8_0] = [2304, 4352];
        assert_eq!([staged::<1>(19, q8_0), staged::<2>(16, q4k)], [19, 16]);
        assert_eq!([staged::<1>(56, q4k), staged::<2>(32, q4k)], [21, 10]);
    }
}
