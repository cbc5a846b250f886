//! Matrix × vector on integer tensor cores, weights in tiles.
//!
//! **Computes** `y[r] = Σ_c W[r][c]·x[c]` for r < rows. W lies in tiles of 16 rows × 256 columns
//! ([`Q4KTile`](crate::layout::Q4KTile), [`Q6KTile`](crate::layout::Q6KTile); tile (group, b) at `(group·blocks + b)·BYTES`), x as 16-bit records
//! ([`Wide`](crate::layout::activation::Wide)), y is f32.
//!
//! **Moves** rows·blocks·144 (Q4_K) or ·210 (Q6_K) bytes of weights, once, past L1; each block of threads reads the
//! 2.25 bytes a column of x from L2 once if a warp has one tile of a row, else once a row group.
//!
//! **Shape of work**: a warp takes one tile, a block of up to eight warps the tiles of one row group (2,048 columns),
//! longer rows go round again; blocks stride over the row groups. The next tile's loads are issued before the sums of
//! the last one meet in shared memory, the first tile's before the wait for the launch that writes x, and dependents are
//! released as soon as they are. Wins over the dp4a form because eight products of the tensor unit replace some two
//! hundred dp4a a warp: the arithmetic leaves the critical path.
//!
//! **Launch**: [`q4k`], [`q6k`]; columns a multiple of 256; PDL allowed. y must not be read by launches before this one
//! that have not ended.

use crate::layout::activation::Wide;
use crate::tile::{Activation, Q4KTile, Q6KTile, RowSums, Tile, quad_sum};
use cuda_std::prelude::*;

/// Where a warp stands: a row group, and which of its tiles.
#[derive(Clone, Copy)]
struct Place {
    group: u32,
    round: u32,
}

/// What all warps of the launch share.
#[derive(Clone, Copy)]
struct Work {
    weights: *const u8,
    x: *const u8,
    groups: u32,
    blocks: u32,
    warps: u32,
    /// Tiles of a row that each warp takes.
    rounds: u32,
}

impl Work {
    /// The column block of this warp in `round`; past the row's end where `blocks` is no multiple of the warps.
    #[inline(always)]
    fn block(&self, round: u32, warp: u32) -> u32 {
        round * self.warps + warp
    }

    /// The warp's tile, or zero weights past the row's end.
    #[inline(always)]
    unsafe fn tile<T: Tile>(&self, at: Place, warp: u32, lane: u32) -> T {
        let b = self.block(at.round, warp);
        if b < self.blocks {
            // SAFETY: the group and the block exist.
            unsafe {
                T::load(
                    self.weights
                        .add((at.group as usize * self.blocks as usize + b as usize) * T::BYTES),
                    lane,
                )
            }
        } else {
            T::zero()
        }
    }

    /// The activations that belong to it; past the row's end the last ones, which meet zero weights.
    #[inline(always)]
    unsafe fn activation(&self, round: u32, warp: u32, lane: u32) -> Activation {
        let b = self.block(round, warp).min(self.blocks - 1);
        // SAFETY: the record exists.
        unsafe { Activation::load(self.x.add(b as usize * Wide::BYTES), lane) }
    }

    /// The next tile of the row group, or the first of this block's next one.
    #[inline(always)]
    fn after(&self, at: Place) -> Place {
        if at.round + 1 < self.rounds {
            Place {
                group: at.group,
                round: at.round + 1,
            }
        } else {
            Place {
                group: at.group + thread::grid_dim_x(),
                round: 0,
            }
        }
    }
}

#[inline(always)]
unsafe fn multiply<T: Tile>(weights: *const u8, x: *const u8, y: *mut f32, rows: u32, blocks: u32, rounds: u32) {
    let (id, warps) = (thread::thread_idx_x(), thread::block_dim_x() / 32);
    let (warp, lane) = (id / 32, id % 32);
    let work = Work {
        weights,
        x,
        groups: rows.div_ceil(16),
        blocks,
        warps,
        rounds,
    };
    let mut at = Place {
        group: thread::block_idx_x(),
        round: 0,
    };
    // SAFETY: the launch has no more blocks than row groups, so the first tile exists.
    let mut tile: T = unsafe { work.tile(at, warp, lane) };
    pdl::launch_dependents();
    let mut scales = tile.scales(lane);
    let mut sums = [RowSums::at(0), RowSums::at(RowSums::BYTES)];
    sums[0].clear_absent(warps, id);
    sums[1].clear_absent(warps, id);
    pdl::wait();
    // SAFETY: the launch before this one has written x.
    let mut activation = unsafe { work.activation(0, warp, lane) };
    let mut row_sums = [0f32; 2];
    while at.group < work.groups {
        let part = tile.multiply(scales, &activation, lane);
        row_sums = [row_sums[0] + part[0], row_sums[1] + part[1]];
        let next = work.after(at);
        if next.group < work.groups {
            // SAFETY: the row group exists.
            tile = unsafe { work.tile(next, warp, lane) };
        }
        if work.rounds > 1 {
            // SAFETY: as above.
            activation = unsafe { work.activation(next.round, warp, lane) };
        }
        if next.round == 0 {
            sums[0].put([quad_sum(row_sums[0]), quad_sum(row_sums[1])], warp, lane);
            thread::sync_threads();
            let row = at.group * 16 + id;
            if id < 16 && row < rows {
                // SAFETY: y has `rows` elements.
                unsafe { global::store(y.add(row as usize), sums[0].total(id)) };
            }
            // The other buffer: nobody writes this one again before the next barrier.
            sums = [sums[1], sums[0]];
            row_sums = [0.0; 2];
        }
        if next.group < work.groups {
            scales = tile.scales(lane);
        }
        at = next;
    }
}

/// Matrix × vector, Q4_K tiles × 16-bit activations, on tensor cores.
///
/// # Safety
/// The launch is one of [`q4k`]: the pointers cover what the shape says.
#[kernel(pdl)]
pub unsafe fn mmvq_q4k_tensor(weights: *const u8, x: *const u8, y: *mut f32, rows: u32, blocks: u32, rounds: u32) {
    // SAFETY: the launch's contract.
    unsafe { multiply::<Q4KTile>(weights, x, y, rows, blocks, rounds) }
}

/// Matrix × vector, Q6_K tiles × 16-bit activations, on tensor cores.
///
/// # Safety
/// The launch is one of [`q6k`]: the pointers cover what the shape says.
#[kernel(pdl)]
pub unsafe fn mmvq_q6k_tensor(weights: *const u8, x: *const u8, y: *mut f32, rows: u32, blocks: u32, rounds: u32) {
    // SAFETY: the launch's contract.
    unsafe { multiply::<Q6KTile>(weights, x, y, rows, blocks, rounds) }
}

#[cfg(not(target_arch = "nvptx64"))]
mod launch {
    use super::{RowSums, mmvq_q4k_tensor, mmvq_q6k_tensor};
    use crate::layout::Shape;
    use crate::mmvq::Operands;
    use crate::shape::{ShapeError, count, multiple};
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};

    /// Warps of a block for rows of `blocks` tiles: as few rounds as eight warps allow, shared evenly.
    pub fn warps(blocks: u32) -> u32 {
        blocks.div_ceil(blocks.div_ceil(RowSums::WARPS))
    }

    /// Grid, block and shared memory, and the counts that the kernel takes: rows, blocks of a row, rounds.
    fn config(kernel: &'static str, shape: Shape, max_blocks: u32) -> Result<(LaunchConfig, [u32; 3]), ShapeError> {
        let rows = count(kernel, "rows", shape.rows)?;
        let blocks = multiple(kernel, shape.columns, 256)? / 256;
        let grid = rows.div_ceil(16).min(max_blocks.max(1));
        let config = LaunchConfig::new(grid, 32 * warps(blocks))
            .shared(2 * RowSums::BYTES)
            .pdl(true);
        Ok((config, [rows, blocks, blocks.div_ceil(RowSums::WARPS)]))
    }

    /// Q4_K tiles × 16-bit records, on at most `max_blocks` blocks.
    ///
    /// # Errors
    /// When there are no rows, or the columns are no multiple of 256.
    pub fn q4k(shape: Shape, operands: Operands, max_blocks: u32) -> Result<PreparedLaunch, ShapeError> {
        let (config, [rows, blocks, rounds]) = config("mmvq_q4k_tensor", shape, max_blocks)?;
        Ok(mmvq_q4k_tensor::prepare(
            config,
            operands.weights,
            operands.x,
            operands.y,
            rows,
            blocks,
            rounds,
        ))
    }

    /// Q6_K tiles × 16-bit records, on at most `max_blocks` blocks.
    ///
    /// # Errors
    /// When there are no rows, or the columns are no multiple of 256.
    pub fn q6k(shape: Shape, operands: Operands, max_blocks: u32) -> Result<PreparedLaunch, ShapeError> {
        let (config, [rows, blocks, rounds]) = config("mmvq_q6k_tensor", shape, max_blocks)?;
        Ok(mmvq_q6k_tensor::prepare(
            config,
            operands.weights,
            operands.x,
            operands.y,
            rows,
            blocks,
            rounds,
        ))
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn warps_share_a_row_evenly() {
            assert_eq!([1, 3, 8, 9, 16, 24, 32].map(super::warps), [1, 3, 8, 5, 8, 8, 8]);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use launch::{q4k, q6k, warps};
