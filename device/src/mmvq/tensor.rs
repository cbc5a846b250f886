//! Matrix × vector on integer tensor cores, weights in tiles.
//!
//! **Computes** `y[r] = Σ_c W[r][c]·x[c]` for r < rows. W lies in tiles of 16 rows × 256 columns
//! (the layouts of [`layout`](crate::layout) with that name; tile (group, b) at `(group·blocks + b)·BYTES`), x as 16-bit records
//! ([`Wide`]), y is f32.
//!
//! **Moves** the file's bytes of W, once, past L1; each block of threads reads the
//! 2.25 bytes a column of x from L2 once if a warp has one tile of a row, else once a row group.
//!
//! **Shape of work**: a warp takes one tile, a block of up to eight warps the tiles of one row group (2,048 columns),
//! longer rows go round again; blocks stride over the row groups. The next tile's loads are issued before the sums of
//! the last one meet in shared memory, the first tile's before the wait for the launch that writes x, and dependents are
//! released as soon as they are. Wins over the dp4a form because eight products of the tensor unit replace some two
//! hundred dp4a a warp: the arithmetic leaves the critical path.
//!
//! **Launch**: [`launch`](fn@launch); columns a multiple of the type's block; PDL allowed. y must not be read by launches before this one
//! that have not ended.

use crate::layout::activation::Wide;
use crate::tile::{
    Activation, Q4_0Tile, Q4_1Tile, Q4KTile, Q5_0Tile, Q5_1Tile, Q5KTile, Q6KTile, Q8_0Tile, RowSums, Tile, quad_sum,
};
use cuda_std::prelude::*;
#[cfg(not(target_arch = "nvptx64"))]
use sparkinfer_gguf::types::TensorType;

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

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $tile:ty, $ty:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The launch is one of [`launch`](fn@launch): the pointers cover what the shape says.
            #[kernel(pdl)]
            pub unsafe fn $name(weights: *const u8, x: *const u8, y: *mut f32, rows: u32, blocks: u32, rounds: u32) {
                // SAFETY: the launch's contract.
                unsafe { multiply::<$tile>(weights, x, y, rows, blocks, rounds) }
            }
        )*

        /// The launch of a type's kernel.
        #[cfg(not(target_arch = "nvptx64"))]
        fn prepare_of(ty: TensorType) -> Option<host::Prepare> {
            match ty {
                $(TensorType::$ty => Some($name::prepare),)*
                _ => None,
            }
        }
    };
}

kernels! {
    /// Matrix × vector, Q4_K tiles × 16-bit activations, on tensor cores.
    mmvq_q4k_tensor = Q4KTile, Q4_K;
    /// Matrix × vector, Q5_K tiles × 16-bit activations, on tensor cores.
    mmvq_q5k_tensor = Q5KTile, Q5_K;
    /// Matrix × vector, Q6_K tiles × 16-bit activations, on tensor cores.
    mmvq_q6k_tensor = Q6KTile, Q6_K;
    /// Matrix × vector, Q4_0 tiles × 16-bit activations, on tensor cores.
    mmvq_q4_0_tensor = Q4_0Tile, Q4_0;
    /// Matrix × vector, Q4_1 tiles × 16-bit activations, on tensor cores.
    mmvq_q4_1_tensor = Q4_1Tile, Q4_1;
    /// Matrix × vector, Q5_0 tiles × 16-bit activations, on tensor cores.
    mmvq_q5_0_tensor = Q5_0Tile, Q5_0;
    /// Matrix × vector, Q5_1 tiles × 16-bit activations, on tensor cores.
    mmvq_q5_1_tensor = Q5_1Tile, Q5_1;
    /// Matrix × vector, Q8_0 tiles × 16-bit activations, on tensor cores.
    mmvq_q8_0_tensor = Q8_0Tile, Q8_0;
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::{RowSums, prepare_of};
    use crate::layout::Shape;
    use crate::mmvq::Operands;
    use crate::shape::{ShapeError, count, multiple};
    use cuda_std::DevicePtr;
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};
    use sparkinfer_gguf::types::TensorType;

    pub(super) type Prepare =
        fn(LaunchConfig, DevicePtr<u8>, DevicePtr<u8>, DevicePtr<f32>, u32, u32, u32) -> PreparedLaunch;

    /// Warps of a block for rows of `tiles` tiles: as few rounds as eight warps allow, shared evenly.
    pub fn warps(tiles: u32) -> u32 {
        tiles.div_ceil(tiles.div_ceil(RowSums::WARPS))
    }

    /// Tiles of type `ty` × 16-bit records, on at most `max_blocks` blocks.
    ///
    /// # Errors
    /// A type that has no tiles, no rows, or columns that are no multiple of the type's block.
    pub fn launch(ty: TensorType, shape: Shape, o: Operands, max_blocks: u32) -> Result<PreparedLaunch, ShapeError> {
        let kernel = "mmvq_tensor";
        let refuse = || ShapeError::new(kernel, format!("weights of type {ty}, which has no tiles"));
        let prepare = prepare_of(ty).ok_or_else(refuse)?;
        let rows = count(kernel, "rows", shape.rows)?;
        let tiles = multiple(kernel, shape.columns, ty.block_len())?.div_ceil(256);
        let grid = rows.div_ceil(16).min(max_blocks.max(1));
        let config = LaunchConfig::new(grid, 32 * warps(tiles))
            .shared(2 * RowSums::BYTES)
            .pdl(true);
        Ok(prepare(
            config,
            o.weights,
            o.x,
            o.y,
            rows,
            tiles,
            tiles.div_ceil(RowSums::WARPS),
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
pub use host::{launch, warps};
