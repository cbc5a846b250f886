//! Sixteen rows of a tiled matrix times a vector, by one block: the body of every decode kernel with static weights.
//!
//! The warps of the block share the columns, 256 each; all tiles are on the way to shared memory before the wait
//! ([`Stage`]).

use super::columns::Columns;
use super::marks::{Launch, Point};
use super::meeting::Meeting;
use crate::tile::{Activation, Q4KTile, Q6KTile, Stage, Tile};
use cuda_std::prelude::*;
use cuda_std::unroll::stepped;

/// Weight types that the decode kernels take, as kernels know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TileKind {
    /// [`Q4KTile`].
    Q4K = 0,
    /// [`Q6KTile`].
    Q6K = 1,
}

impl TileKind {
    /// The kind with that number; [`with_tile`] takes every other number for [`Q6K`](Self::Q6K) too.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        if number == Self::Q4K as u32 {
            Self::Q4K
        } else {
            Self::Q6K
        }
    }

    /// Bytes of a tile of 16 rows × 256 columns.
    #[must_use]
    pub const fn tile_bytes(self) -> usize {
        match self {
            Self::Q4K => Q4KTile::BYTES,
            Self::Q6K => Q6KTile::BYTES,
        }
    }
}

/// A tiled matrix in device memory: tile (row group, column block) at `(group · blocks + block) · tile bytes`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Matrix {
    /// The first tile, 16-byte aligned.
    pub tiles: DevicePtr<u8>,
    /// Groups of 16 rows.
    pub groups: u32,
    /// A [`TileKind`].
    pub kind: u32,
}

impl Matrix {
    /// A matrix of `rows` rows (a multiple of 16) of tiles of `kind`.
    #[must_use]
    pub const fn new(tiles: DevicePtr<u8>, rows: u32, kind: TileKind) -> Self {
        Self {
            tiles,
            groups: rows / 16,
            kind: kind as u32,
        }
    }
}

/// A thread's place in a block whose warps share the columns of 16 rows.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub lane: u32,
    pub warp: u32,
    pub warps: u32,
    /// Blocks of 256 columns.
    pub blocks: u32,
}

impl Place {
    #[inline(always)]
    pub(super) fn new(blocks: u32) -> Self {
        Self {
            lane: warp::lane(),
            warp: thread::thread_idx_x() / 32,
            warps: thread::block_dim_x() / 32,
            blocks,
        }
    }

    /// The warp's tile of row group `group` in column block `block`.
    ///
    /// # Safety
    /// The matrix has the tile.
    #[inline(always)]
    pub(super) unsafe fn tile<T: Tile>(self, tiles: *const u8, group: u32, block: u32) -> T {
        // SAFETY: the caller's.
        unsafe {
            T::load(
                tiles.add((group as usize * self.blocks as usize + block as usize) * T::BYTES),
                self.lane,
            )
        }
    }

    /// The lane's columns of block `block` of `x`.
    ///
    /// # Safety
    /// The vector has the block.
    #[inline(always)]
    pub(super) unsafe fn columns(self, x: *const f32, block: u32) -> Columns {
        // SAFETY: the caller's.
        unsafe { Columns::load(x.add((256 * block) as usize), self.lane) }
    }
}

/// The columns as tiles of type `T` take them: only Q4_K's product asks for sums of columns.
#[inline(always)]
pub(super) fn activation<T: Tile>(x: &Columns, lane: u32) -> Activation {
    if T::BYTES == Q4KTile::BYTES {
        x.fragments::<true>(lane)
    } else {
        x.fragments::<false>(lane)
    }
}

/// Row group `group` of a matrix times the vector whose columns of each block `x` loads, after the wait; leaves the warps'
/// parts in `meeting`. Returns what `early` loads: called behind the wait, so that it is there when the warps have met.
///
/// With `EARLY`, a warp whose weights are there before the wait takes its first tile to registers then, off the way from x
/// to the result; that pays where blocks have long to wait and registers to spare.
///
/// # Safety
/// The matrix has the row group; `x` may load each of its blocks of columns behind the wait. All threads of the block call
/// this together.
#[inline(always)]
pub(super) unsafe fn sixteen_rows<T: Tile, const EARLY: bool, E>(
    at: Place,
    tiles: *const u8,
    group: u32,
    x: impl Fn(u32) -> Columns,
    meeting: Meeting,
    launch: Launch,
    early: impl FnOnce() -> E,
) -> E {
    let bytes = at.blocks * T::BYTES as u32;
    let stage = Stage::at(stage_at(at.warps), bytes);
    launch.is_at(Point::Start);
    // SAFETY: the caller's.
    unsafe {
        if thread::thread_idx_x() == 0 {
            stage.expect(bytes);
        }
        stage.copy(1, bytes, |_| tiles.add(group as usize * bytes as usize));
        thread::sync_threads();
        pdl::launch_dependents();
        let mut loaded = EARLY && stage.arrived();
        let mut tile: T = if loaded {
            stage.tile(at.warp, at.lane)
        } else {
            T::zero()
        };
        launch.is_at(Point::Ready);
        pdl::wait();
        launch.is_at(Point::Waited);
        let mut columns = x(at.warp);
        let early = early();
        let mut rows = [0.0; 2];
        let mut block = at.warp;
        loop {
            let activation = activation::<T>(&columns, at.lane);
            launch.is_at(Point::Input);
            if !loaded {
                stage.wait();
                tile = stage.tile(block, at.lane);
            }
            launch.is_at(Point::Weights);
            loaded = false;
            let part = tile.multiply(tile.scales(at.lane), &activation, at.lane);
            rows = [rows[0] + part[0], rows[1] + part[1]];
            block = stepped(block + at.warps);
            if block >= at.blocks {
                break;
            }
            columns = x(block);
        }
        meeting.put(rows, at.warp, at.lane);
        early
    }
}

/// Where the stage of [`sixteen_rows`] lies.
#[inline(always)]
const fn stage_at(warps: u32) -> u32 {
    Meeting::bytes(warps).next_multiple_of(16)
}

/// Shared memory of a block of `warps` warps that calls [`sixteen_rows`] for tiles of one of `kinds`, `blocks` of them.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn shared_bytes(warps: u32, blocks: u32, kinds: impl IntoIterator<Item = u32>) -> u32 {
    let bytes = kinds.into_iter().map(|kind| end_of_room(warps, blocks, kind));
    bytes.max().unwrap_or(0)
}

/// Where the shared memory of [`sixteen_rows`] ends for tiles of type `kind`, a multiple of 16.
#[inline(always)]
pub(super) const fn end_of_room(warps: u32, blocks: u32, kind: u32) -> u32 {
    stage_at(warps) + Stage::HEAD + blocks * TileKind::of(kind).tile_bytes() as u32
}

/// Bytes of the largest tile of `kinds`.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn largest_tile(kinds: impl IntoIterator<Item = u32>) -> u32 {
    let bytes = kinds.into_iter().map(|kind| TileKind::of(kind).tile_bytes() as u32);
    bytes.max().unwrap_or(0)
}

/// Runs `$body` with `$tile` as the tile type of `$kind`, the same for a whole block.
macro_rules! with_tile {
    ($kind:expr, $tile:ident => $body:expr) => {
        if $kind == $crate::decode::rows::TileKind::Q4K as u32 {
            type $tile = $crate::tile::Q4KTile;
            $body
        } else {
            type $tile = $crate::tile::Q6KTile;
            $body
        }
    };
}
pub(crate) use with_tile;

/// Warps of a block for `columns` columns: one for each 256, or the most up to `most` that share them evenly.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn warps_for(columns: u32, most: u32) -> u32 {
    let blocks = columns / 256;
    (1..=most.min(blocks))
        .rev()
        .find(|warps| blocks.is_multiple_of(*warps))
        .unwrap_or(1)
}
