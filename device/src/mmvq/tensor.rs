//! Matrix × vector on integer tensor cores, weights in tiles.
//!
//! **Computes** `y[r] = scale·Σ_c W[r][c]·x[c] + bias[r]` for r < rows, and the same for chosen experts, a rank each
//! (grid y): rank k takes matrix `ids[k]` of a stack ([`Extra`]). W lies in tiles of 16 rows × 256 columns
//! (the layouts of [`layout`](crate::layout) with that name; tile (group, b) at `(group·blocks + b)·BYTES`), x as 16-bit records
//! ([`Wide`]), y is f32.
//!
//! **Moves** the file's bytes of W, once, past L1; each block of threads reads the
//! 2.25 bytes a column of x from L2 once if a warp has one tile of a row, else once a row group.
//!
//! **Shape of work**: a warp takes one tile, a block of up to eight warps the tiles of one row group (2,048 columns),
//! longer rows go round again; blocks stride over the row groups. The next tile's loads are issued before the sums of
//! the last one meet in shared memory ([`Tile::AHEAD`]: before it is multiplied), the first tile's before the wait for the launch that writes x, and dependents are
//! released as soon as they are. Wins over the dp4a form because eight products of the tensor unit replace some two
//! hundred dp4a a warp: the arithmetic leaves the critical path.
//!
//! **Launch**: [`launch`](fn@launch), [`launch_with`]; columns a multiple of the type's block; PDL allowed. y must not be read by launches before this one
//! that have not ended.

use crate::gemv::{Extra, rank_stride};
use crate::layout::activation::Wide;
use crate::tile::{
    Activation, Iq4NlTile, Iq4XsTile, Mxfp4Tile, Nvfp4Tile, Q2KTile, Q3KTile, Q4_0Tile, Q4_1Tile, Q4KTile, Q5_0Tile,
    Q5_1Tile, Q5KTile, Q6KTile, Q8_0Tile, RowSums, Tile, quad_sum,
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
    unsafe fn activation<T: Tile>(&self, round: u32, warp: u32, lane: u32) -> Activation {
        let b = self.block(round, warp).min(self.blocks - 1);
        // SAFETY: the record exists.
        T::prepare(
            unsafe { Activation::load(self.x.add(b as usize * Wide::BYTES), lane) },
            lane,
        )
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

/// What a launch computes: matrix, vector, results; rows, tiles of a row, and how many of them a warp takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Product {
    weights: DevicePtr<u8>,
    x: DevicePtr<u8>,
    y: DevicePtr<f32>,
    rows: u32,
    blocks: u32,
    rounds: u32,
    padding: u32,
}

#[inline(always)]
unsafe fn multiply<T: Tile>(product: Product, extra: Extra) {
    let (id, warps) = (thread::thread_idx_x(), thread::block_dim_x() / 32);
    let (warp, lane) = (id / 32, id % 32);
    let mut work = Work {
        weights: product.weights.as_ptr(),
        x: product.x.as_ptr(),
        groups: product.rows.div_ceil(16),
        blocks: product.blocks,
        warps,
        rounds: product.rounds,
    };
    let mut at = Place {
        group: thread::block_idx_x(),
        round: 0,
    };
    if !extra.ids.is_null() {
        // The launch before chooses the matrix.
        pdl::wait();
    }
    let rank = thread::block_idx_y() as usize;
    // SAFETY: the launch's contract: every rank has an expert, an x and results; there are no more blocks than row
    // groups, so the first tile exists.
    let (y, factor, mut tile): (_, _, T) = unsafe {
        let expert = extra.expert(rank);
        work.weights = work.weights.add(expert * extra.expert_bytes as usize);
        work.x = work.x.add(rank * extra.x_stride as usize);
        let y = product.y.as_mut_ptr().add(rank * rank_stride(product.rows) as usize);
        (y, extra.factor(expert), work.tile(at, warp, lane))
    };
    pdl::launch_dependents();
    let mut sums = [RowSums::at(0), RowSums::at(RowSums::BYTES)];
    sums[0].clear_absent(warps, id);
    sums[1].clear_absent(warps, id);
    pdl::wait();
    let mut scales = tile.scales(lane);
    // SAFETY: the launch before this one has written x.
    let mut activation = unsafe { work.activation::<T>(0, warp, lane) };
    let mut row_sums = [0f32; 2];
    while at.group < work.groups {
        let next = work.after(at);
        let part = if T::AHEAD {
            let now = tile;
            if next.group < work.groups {
                // SAFETY: the row group exists.
                tile = unsafe { work.tile(next, warp, lane) };
            }
            now.multiply(scales, &activation, lane)
        } else {
            tile.multiply(scales, &activation, lane)
        };
        row_sums = [row_sums[0] + part[0], row_sums[1] + part[1]];
        if !T::AHEAD && next.group < work.groups {
            // SAFETY: as above.
            tile = unsafe { work.tile(next, warp, lane) };
        }
        if work.rounds > 1 {
            // SAFETY: as above.
            activation = unsafe { work.activation::<T>(next.round, warp, lane) };
        }
        if next.round == 0 {
            sums[0].put([quad_sum(row_sums[0]), quad_sum(row_sums[1])], warp, lane);
            thread::sync_threads();
            let row = at.group * 16 + id;
            if id < 16 && row < product.rows {
                // SAFETY: y and the bias have `rows` elements.
                unsafe { global::store(y.add(row as usize), sums[0].total(id) * factor + extra.term(row)) };
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
            /// The launch is one of [`launch_with`]: the pointers cover what the shape and `extra` say.
            #[kernel(pdl)]
            pub unsafe fn $name(product: Product, extra: Extra) {
                // SAFETY: the launch's contract.
                unsafe { multiply::<$tile>(product, extra) }
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
    /// Matrix × vector, Q2_K tiles × 16-bit activations, on tensor cores.
    mmvq_q2k_tensor = Q2KTile, Q2_K;
    /// Matrix × vector, Q3_K tiles × 16-bit activations, on tensor cores.
    mmvq_q3k_tensor = Q3KTile, Q3_K;
    /// Matrix × vector, IQ4_NL tiles × 16-bit activations, on tensor cores.
    mmvq_iq4_nl_tensor = Iq4NlTile, IQ4_NL;
    /// Matrix × vector, IQ4_XS tiles × 16-bit activations, on tensor cores.
    mmvq_iq4_xs_tensor = Iq4XsTile, IQ4_XS;
    /// Matrix × vector, MXFP4 tiles × 16-bit activations, on tensor cores.
    mmvq_mxfp4_tensor = Mxfp4Tile, MXFP4;
    /// Matrix × vector, NVFP4 tiles × 16-bit activations, on tensor cores.
    mmvq_nvfp4_tensor = Nvfp4Tile, NVFP4;
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::{Extra, Product, RowSums, prepare_of};
    use crate::layout::Shape;
    use crate::mmvq::Operands;
    use crate::shape::{ShapeError, count, multiple};
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};
    use sparkinfer_gguf::types::TensorType;

    pub(super) type Prepare = fn(LaunchConfig, Product, Extra) -> PreparedLaunch;

    const KERNEL: &str = "mmvq_tensor";

    /// Warps of a block for rows of `tiles` tiles: as few rounds as eight warps allow, shared evenly.
    pub fn warps(tiles: u32) -> u32 {
        tiles.div_ceil(tiles.div_ceil(RowSums::WARPS))
    }

    /// Tiles of type `ty` × 16-bit records, on at most `max_blocks` blocks.
    ///
    /// # Errors
    /// A type that has no tiles, no rows, or columns that are no multiple of the type's block.
    pub fn launch(ty: TensorType, shape: Shape, o: Operands, max_blocks: u32) -> Result<PreparedLaunch, ShapeError> {
        launch_with(ty, shape, o, max_blocks, Extra::NONE, 1)
    }

    /// As [`launch`], with what `extra` says, for `ranks` experts: `y` has [`rank_stride`](super::rank_stride) floats for
    /// each, and each rank's records begin `extra.x_stride` bytes behind the last one's.
    ///
    /// # Errors
    /// As [`launch`]; no ranks or more than a grid has rows, more than one without ids, or records that are not aligned.
    pub fn launch_with(
        ty: TensorType,
        shape: Shape,
        o: Operands,
        max_blocks: u32,
        extra: Extra,
        ranks: u32,
    ) -> Result<PreparedLaunch, ShapeError> {
        let refuse = |rule| ShapeError::new(KERNEL, rule);
        let kernel = prepare_of(ty);
        let prepare = kernel.ok_or_else(|| refuse(format!("weights of type {ty}, which has no tiles")))?;
        extra.check_ranks(KERNEL, ranks, 16)?;
        let rows = count(KERNEL, "rows", shape.rows)?;
        let tiles = multiple(KERNEL, shape.columns, ty.block_len())?.div_ceil(256);
        let grid = rows.div_ceil(16).min(max_blocks.max(1));
        let config = LaunchConfig::shaped([grid, ranks, 1], [32 * warps(tiles), 1, 1])
            .shared(2 * RowSums::BYTES)
            .pdl(true);
        let product = Product {
            weights: o.weights,
            x: o.x,
            y: o.y,
            rows,
            blocks: tiles,
            rounds: tiles.div_ceil(RowSums::WARPS),
            padding: 0,
        };
        Ok(prepare(config, product, extra))
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
pub use host::{launch, launch_with, warps};
