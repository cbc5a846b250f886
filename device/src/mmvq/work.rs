//! Which tiles a warp takes.

use crate::layout::activation::Wide;
use crate::tile::{Activation, Tile};
use cuda_std::prelude::*;

/// A row group, which of a warp's tiles of it, and that tile's address.
#[derive(Clone, Copy)]
pub struct Place {
    pub group: u32,
    pub round: u32,
    pub tile: *const u8,
}

/// What a warp has to do: tiles of every so many row groups, several of each where rows are `LONG`.
#[derive(Clone, Copy)]
pub struct Work<const LONG: bool> {
    pub x: *const u8,
    pub groups: u32,
    /// Tiles of a row.
    pub blocks: u32,
    /// Tiles of a row that each warp takes: one unless `LONG`.
    pub rounds: u32,
    pub warps: u32,
    pub warp: u32,
    pub lane: u32,
    /// Bytes from a warp's tile to its next one in the row group.
    pub step: usize,
    /// Bytes from its last tile of a row group to its first of the block's next one.
    pub stride: usize,
}

impl<const LONG: bool> Work<LONG> {
    /// The column block of this warp in `round`; past the row's end where `blocks` is no multiple of the warps.
    #[inline(always)]
    fn block(&self, round: u32) -> u32 {
        round * self.warps + self.warp
    }

    /// The place of the first tile in a matrix.
    #[inline(always)]
    pub fn first<T: Tile>(&self, weights: *const u8) -> Place {
        let group = thread::block_idx_x();
        let tile = group as usize * self.blocks as usize + self.warp as usize;
        Place {
            group,
            round: 0,
            tile: weights.wrapping_add(tile * T::BYTES),
        }
    }

    /// Whether the row group at `at` exists.
    #[inline(always)]
    pub fn has(&self, at: Place) -> bool {
        at.group < self.groups
    }

    /// Whether the warp has a tile there, where the row group exists; if not its weights count as zero.
    #[inline(always)]
    pub fn in_row(&self, at: Place) -> bool {
        !LONG || self.block(at.round) < self.blocks
    }

    /// The activations of the tiles of a round; past the row's end the last ones, which meet zero weights.
    ///
    /// # Safety
    /// Nothing writes the records any more.
    #[inline(always)]
    pub unsafe fn activation<T: Tile>(&self, round: u32) -> Activation {
        let b = self.block(round).min(self.blocks - 1);
        // SAFETY: the record exists.
        let x = unsafe { Activation::load(self.x.wrapping_add(b as usize * Wide::BYTES), self.lane) };
        T::prepare(x, self.lane)
    }

    /// The next tile of the row group, or the first of this block's next one.
    #[inline(always)]
    pub fn after(&self, at: Place) -> Place {
        if LONG && at.round + 1 < self.rounds {
            Place {
                group: at.group,
                round: at.round + 1,
                tile: at.tile.wrapping_add(self.step),
            }
        } else {
            Place {
                group: at.group + thread::grid_dim_x(),
                round: 0,
                tile: at.tile.wrapping_add(self.stride),
            }
        }
    }
}
