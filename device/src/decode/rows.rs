//! Sixteen rows of a tiled matrix times a vector, by one block: the body of every decode kernel with static weights.
//!
//! The warps of the block share the columns, 256 each; a warp has its first tile on the way before it waits. (Gains would
//! be no gain: they come from L2 as x does, and sixteen registers that wait for them cost a block a multiprocessor.) The norm is folded in: `W (x ∘ g / rms(x))` is
//! `(W (x ∘ g)) / rms(x)`, so only the gains are on the way to the product, and the sum of squares meets the row sums
//! behind it.

use super::columns::Columns;
use super::meeting::Meeting;
use crate::tile::{Activation, Q4KTile, Q6KTile, Tile};
use cuda_std::prelude::*;

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

    /// The lane's columns of block `block` of `x`; with `NORM` times those of `gain`, and the sum of squares without them.
    ///
    /// # Safety
    /// The vectors have the block.
    #[inline(always)]
    pub(super) unsafe fn columns<const NORM: bool>(
        self,
        x: *const f32,
        gain: *const f32,
        block: u32,
    ) -> (Columns, f32) {
        let from = (256 * block) as usize;
        // SAFETY: the caller's.
        unsafe {
            if NORM {
                Columns::load_times(x.add(from), gain.add(from), self.lane)
            } else {
                (Columns::load(x.add(from), self.lane), 0.0)
            }
        }
    }
}

/// A warp's parts of 16 rows, before the block adds them up.
#[derive(Clone, Copy)]
struct Parts {
    rows: [f32; 2],
    squares: f32,
}

impl Parts {
    /// Adds a tile times columns, of which `squares` is the sum of squares before the gains.
    #[inline(always)]
    fn add<T: Tile>(&mut self, tile: &T, scales: T::Scales, (x, squares): (Columns, f32), lane: u32) {
        let part = multiply(tile, scales, &x, lane);
        self.rows = [self.rows[0] + part[0], self.rows[1] + part[1]];
        self.squares += squares;
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

/// A tile times columns. All lanes of the warp call this together.
#[inline(always)]
pub(super) fn multiply<T: Tile>(tile: &T, scales: T::Scales, x: &Columns, lane: u32) -> [f32; 2] {
    tile.multiply(scales, &activation::<T>(x, lane), lane)
}

/// Row group `group` of a matrix times `x`, or with `NORM` times `x ∘ gain`, after the wait; leaves the warps' parts in
/// `meeting`. Returns what `early` loads: called behind the wait, so that it is there when the warps have met.
///
/// # Safety
/// The matrix has the row group; `x` and, with `NORM`, `gain` have `256 · blocks` floats. All threads of the block call
/// this together.
#[inline(always)]
pub(super) unsafe fn sixteen_rows<T: Tile, const NORM: bool>(
    at: Place,
    tiles: *const u8,
    group: u32,
    x: *const f32,
    gain: *const f32,
    meeting: Meeting,
    early: impl FnOnce() -> f32,
) -> f32 {
    // SAFETY: the caller's.
    unsafe {
        let tile: T = at.tile(tiles, group, at.warp);
        pdl::launch_dependents();
        let scales = tile.scales(at.lane);
        pdl::wait();
        let columns = at.columns::<NORM>(x, gain, at.warp);
        let early = early();
        let mut parts = Parts {
            rows: [0.0; 2],
            squares: 0.0,
        };
        parts.add(&tile, scales, columns, at.lane);
        let mut block = at.warp + at.warps;
        while block < at.blocks {
            let tile: T = at.tile(tiles, group, block);
            parts.add(&tile, tile.scales(at.lane), at.columns::<NORM>(x, gain, block), at.lane);
            block += at.warps;
        }
        meeting.put(parts.rows, at.warp, at.lane);
        if NORM {
            meeting.put_squares(parts.squares, at.warp, at.lane);
        }
        early
    }
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
