//! Matrix × vector on integer tensor cores, weights in tiles.
//!
//! **Computes** `y[r] = scale·Σ_c W[r][c]·x[c] + bias[r]` for r < rows, and the same for chosen experts, a rank each
//! (grid y): rank k takes matrix `ids[k]` of a stack ([`Extra`]). W lies in tiles of 16 rows × 256 columns
//! (the layouts of [`layout`](crate::layout) with that name; tile (group, b) at `(group·blocks + b)·BYTES`), x as 16-bit records
//! ([`Wide`](crate::layout::activation::Wide)), y is f32.
//!
//! **Moves** the file's bytes of W, once, past L1; each block of threads reads the
//! 2.25 bytes a column of x from L2 once if a warp has one tile of a row, else once a row group.
//!
//! **Shape of work**: a warp takes one tile, a block of up to eight warps the tiles of one row group (2,048 columns),
//! longer rows go round again; blocks stride over the row groups. The next tile is on its way before the sums of the last
//! one meet in shared memory, and before it is multiplied where products take long ([`supply`](super::supply)). The
//! first tiles are sent for before the wait for the launch that writes x, and dependents are
//! released as soon as they are. Wins over the dp4a form because eight products of the tensor unit replace some two
//! hundred dp4a a warp: the arithmetic leaves the critical path.
//!
//! **Launch**: [`launch`](fn@launch), [`launch_with`]; columns a multiple of the type's block; PDL allowed. y must not be read by launches before this one
//! that have not ended.

use super::meeting::Meeting;
use super::supply::{Direct, Ring, Supply};
use super::work::Work;
use crate::gemv::{Extra, rank_stride};
use crate::tile::{
    Iq4NlTile, Iq4XsTile, Mxfp4Tile, Nvfp4Tile, Q2KTile, Q3KTile, Q4_0Tile, Q4_1Tile, Q4KTile, Q5_0Tile, Q5_1Tile,
    Q5KTile, Q6KTile, Q8_0Tile, Tile,
};
use cuda_std::prelude::*;
#[cfg(not(target_arch = "nvptx64"))]
use sparkinfer_gguf::types::TensorType;

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
unsafe fn multiply<T: Tile, S: Supply<T>, const LONG: bool>(product: Product, extra: Extra) {
    let (id, warps) = (thread::thread_idx_x(), thread::block_dim_x() / 32);
    let warp = id / 32;
    if !extra.ids.is_null() {
        // The launch before chooses the matrix.
        pdl::wait();
    }
    let rank = thread::block_idx_y() as usize;
    // SAFETY: the launch's contract: every rank has an expert, an x and results.
    let (weights, x, y, factor) = unsafe {
        let expert = extra.expert(rank);
        (
            product.weights.as_ptr().add(expert * extra.expert_bytes as usize),
            product.x.as_ptr().add(rank * extra.x_stride as usize),
            product.y.as_mut_ptr().add(rank * rank_stride(product.rows) as usize),
            extra.factor(expert),
        )
    };
    let step = warps as usize * T::BYTES;
    let group_bytes = product.blocks as usize * T::BYTES;
    let work = Work::<LONG> {
        x,
        groups: product.rows.div_ceil(16),
        blocks: product.blocks,
        rounds: product.rounds,
        warps,
        warp,
        lane: id % 32,
        step,
        stride: thread::grid_dim_x() as usize * group_bytes
            - if LONG { (product.rounds - 1) as usize * step } else { 0 },
    };
    let mut at = work.first::<T>(weights);
    // SAFETY: there are no more blocks than row groups, so the first tile exists; each warp has its own shared memory.
    let mut supply = unsafe { S::start(&work, at, Meeting::BYTES + warp * S::BYTES) };
    pdl::launch_dependents();
    let mut meeting = Meeting::new(warps);
    pdl::wait();
    // SAFETY: the launch before this one has written x.
    let mut activation = unsafe { work.activation::<T>(0) };
    let mut row_sums = [0f32; 2];
    while work.has(at) {
        let next = work.after(at);
        // SAFETY: one place after another.
        let part = unsafe {
            let tile = supply.take(&work, at);
            let part = tile.multiply(tile.scales(work.lane), &activation, work.lane);
            supply.taken(&work, next);
            part
        };
        row_sums = [row_sums[0] + part[0], row_sums[1] + part[1]];
        if LONG && work.rounds > 1 {
            // SAFETY: as above.
            activation = unsafe { work.activation::<T>(next.round) };
        }
        if next.round == 0 {
            if meeting.put(row_sums, warp, work.lane) || !work.has(next) {
                meeting.totals(at.group, warp, work.lane, |row, total| {
                    if row < product.rows {
                        // SAFETY: y and the bias have `rows` elements.
                        unsafe { global::store(y.add(row as usize), total * factor + extra.term(row)) };
                    }
                });
            }
            row_sums = [0.0; 2];
        }
        at = next;
    }
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $supply:ty, $tile:ty, $ty:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The launch is one of [`launch_with`]: the pointers cover what the shape and `extra` say.
            #[kernel(pdl, registers = 64)]
            pub unsafe fn $name(product: Product, extra: Extra) {
                // SAFETY: the launch's contract.
                unsafe {
                    if <$supply as Supply<$tile>>::SHORT && product.rounds == 1 {
                        multiply::<$tile, $supply, false>(product, extra);
                    } else {
                        multiply::<$tile, $supply, true>(product, extra);
                    }
                }
            }
        )*

        /// The launch of a type's kernel, and the shared memory of each of its warps.
        #[cfg(not(target_arch = "nvptx64"))]
        fn prepare_of(ty: TensorType) -> Option<(host::Prepare, u32)> {
            match ty {
                $(TensorType::$ty => Some(($name::prepare, <$supply as Supply<$tile>>::BYTES)),)*
                _ => None,
            }
        }
    };
}

kernels! {
    /// Matrix × vector, Q4_K tiles × 16-bit activations, on tensor cores.
    mmvq_q4k_tensor = Direct<Q4KTile>, Q4KTile, Q4_K;
    /// Matrix × vector, Q5_K tiles × 16-bit activations, on tensor cores.
    mmvq_q5k_tensor = Direct<Q5KTile>, Q5KTile, Q5_K;
    /// Matrix × vector, Q6_K tiles × 16-bit activations, on tensor cores.
    mmvq_q6k_tensor = Direct<Q6KTile>, Q6KTile, Q6_K;
    /// Matrix × vector, Q4_0 tiles × 16-bit activations, on tensor cores.
    mmvq_q4_0_tensor = Direct<Q4_0Tile>, Q4_0Tile, Q4_0;
    /// Matrix × vector, Q4_1 tiles × 16-bit activations, on tensor cores.
    mmvq_q4_1_tensor = Direct<Q4_1Tile>, Q4_1Tile, Q4_1;
    /// Matrix × vector, Q5_0 tiles × 16-bit activations, on tensor cores.
    mmvq_q5_0_tensor = Direct<Q5_0Tile>, Q5_0Tile, Q5_0;
    /// Matrix × vector, Q5_1 tiles × 16-bit activations, on tensor cores.
    mmvq_q5_1_tensor = Direct<Q5_1Tile>, Q5_1Tile, Q5_1;
    /// Matrix × vector, Q8_0 tiles × 16-bit activations, on tensor cores.
    mmvq_q8_0_tensor = Direct<Q8_0Tile>, Q8_0Tile, Q8_0;
    /// Matrix × vector, Q2_K tiles × 16-bit activations, on tensor cores.
    mmvq_q2k_tensor = Ring, Q2KTile, Q2_K;
    /// Matrix × vector, Q3_K tiles × 16-bit activations, on tensor cores.
    mmvq_q3k_tensor = Ring, Q3KTile, Q3_K;
    /// Matrix × vector, IQ4_NL tiles × 16-bit activations, on tensor cores.
    mmvq_iq4_nl_tensor = Ring, Iq4NlTile, IQ4_NL;
    /// Matrix × vector, IQ4_XS tiles × 16-bit activations, on tensor cores.
    mmvq_iq4_xs_tensor = Ring, Iq4XsTile, IQ4_XS;
    /// Matrix × vector, MXFP4 tiles × 16-bit activations, on tensor cores.
    mmvq_mxfp4_tensor = Ring, Mxfp4Tile, MXFP4;
    /// Matrix × vector, NVFP4 tiles × 16-bit activations, on tensor cores.
    mmvq_nvfp4_tensor = Ring, Nvfp4Tile, NVFP4;
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::{Extra, Meeting, Product, prepare_of};
    use crate::layout::Shape;
    use crate::mmvq::Operands;
    use crate::shape::{ShapeError, count, multiple};
    use crate::tile::RowSums;
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
        let (prepare, warp_bytes) =
            kernel.ok_or_else(|| refuse(format!("weights of type {ty}, which has no tiles")))?;
        extra.check_ranks(KERNEL, ranks, 16)?;
        let rows = count(KERNEL, "rows", shape.rows)?;
        let tiles = multiple(KERNEL, shape.columns, ty.block_len())?.div_ceil(256);
        let grid = rows.div_ceil(16).min(max_blocks.max(1));
        let config = LaunchConfig::shaped([grid, ranks, 1], [32 * warps(tiles), 1, 1])
            .shared(Meeting::BYTES + warps(tiles) * warp_bytes)
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
