//! The language model head over tiles of any [`Kind`](super::Kind): logits of the whole vocabulary and each block's best
//! token, as [`decode::head`](crate::decode::head) has them.
//!
//! `logits[r] = cap(w_r · (rms(x) ∘ g) + bias[r])` for the rows below `rows`; `best[block]` is the block's highest logit and
//! its row, the lowest row among equals; NaN never wins.
//!
//! **Bytes**: the matrix, once, past L1. **Shape of the work**: blocks stride over groups of 16 rows, a warp for every 256
//! columns, the next tile's loads issued before the sums of the last one meet; the activation is split once a block.
//!
//! **Launch**: [`head`].

use super::matrix::{Matrix, Summed};
use super::rows::activation;
use crate::decode::columns::Columns;
use crate::decode::head::{Best, HeadShape, capped};
use crate::decode::meeting::Meeting;
use crate::decode::residual::Residual;
use cuda_std::prelude::*;

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $tile:ident, $kind:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// Prepare it with [`head`].
            ///
            /// # Safety
            /// The arguments of a launch that [`head`] prepared.
            #[kernel(pdl, registers = 96)]
            pub unsafe fn $name(
                stream: Residual,
                logits: *mut f32,
                best: *mut Best,
                matrix: Matrix,
                shape: HeadShape,
            ) {
                // SAFETY: passed on.
                unsafe { groups::<crate::tile::$tile>(stream, logits, best, matrix, shape) }
            }
        )*

        /// The launch of a kind's kernel.
        #[cfg(not(target_arch = "nvptx64"))]
        fn prepare_of(kind: super::Kind) -> Prepare {
            match kind {
                $(super::Kind::$kind => $name::prepare,)*
            }
        }
    };
}

kernels! {
    /// Logits and each block's best token, Q4_0.
    dense_head_q4_0 = Q4_0Tile, Q4_0;
    /// Logits and each block's best token, Q4_1.
    dense_head_q4_1 = Q4_1Tile, Q4_1;
    /// Logits and each block's best token, Q5_0.
    dense_head_q5_0 = Q5_0Tile, Q5_0;
    /// Logits and each block's best token, Q5_1.
    dense_head_q5_1 = Q5_1Tile, Q5_1;
    /// Logits and each block's best token, Q8_0.
    dense_head_q8_0 = Q8_0Tile, Q8_0;
    /// Logits and each block's best token, Q4_K.
    dense_head_q4k = Q4KTile, Q4K;
    /// Logits and each block's best token, Q5_K.
    dense_head_q5k = Q5KTile, Q5K;
    /// Logits and each block's best token, Q6_K.
    dense_head_q6k = Q6KTile, Q6K;
}

/// The block's row groups, one after the other.
#[inline(always)]
unsafe fn groups<T: Summed>(stream: Residual, logits: *mut f32, best: *mut Best, matrix: Matrix, shape: HeadShape) {
    thread::touch(shape.columns);
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let warps = thread::block_dim_x() / 32;
    let (mut group, mut parity, mut mine) = (thread::block_idx_x(), 0, Best::NONE);
    let tiles = matrix.tiles.as_ptr();
    let tile_of = |group: u32| tiles.wrapping_add((group as usize * warps as usize + warp as usize) * T::BYTES);
    // The last tile of a row may hold less than 256 columns: what nothing meets is not worth its bytes.
    let there = shape.columns - 256 * warp;
    // SAFETY: no more blocks than row groups, a warp for each tile of one; the vectors are as long as the shape says.
    unsafe {
        let mut tile = T::load_first(tile_of(group), lane, there);
        pdl::launch_dependents();
        pdl::wait();
        let columns = Columns::load(stream.gained.as_ptr().add((256 * warp) as usize), lane);
        let squares = stream.squares(shape.columns, lane);
        let columns = activation::<T>(&columns, lane);
        let scale = squares.inverse_rms(shape.columns, shape.eps);
        while group < matrix.groups {
            let part = tile.multiply(tile.scales(lane), &columns, lane);
            let next = group + thread::grid_dim_x();
            if next < matrix.groups {
                tile = T::load_first(tile_of(next), lane, there);
            }
            let meeting = Meeting::at(parity * Meeting::bytes(warps), warps);
            meeting.put(part, warp, lane);
            thread::sync_threads();
            if warp == 0 {
                let token = 16 * group + (lane & 15);
                let sum = meeting.total(lane, warps);
                if lane < 16 && token < shape.rows {
                    let logit = capped(float::fma(sum, scale, matrix.bias_of(group, lane)), shape.softcap);
                    global::store(logits.add(token as usize), logit);
                    mine = mine.or(Best { logit, token });
                }
            }
            parity ^= 1;
            group = next;
        }
        if warp == 0 {
            let mine = mine.of_warp();
            if lane == 0 {
                mine.store(best.add(thread::block_idx_x() as usize));
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
type Prepare = fn(
    cuda_std::launch::LaunchConfig,
    Residual,
    DevicePtr<f32>,
    DevicePtr<Best>,
    Matrix,
    HeadShape,
) -> cuda_std::launch::PreparedLaunch;

/// The launch for `shape` on `blocks` blocks at most; `logits` of `shape.rows` floats, `best` of as many entries as the
/// launch has blocks. Columns may be any multiple of 64 up to 4,096.
///
/// # Errors
/// Other columns, a matrix without a kind or with fewer rows than the shape.
#[cfg(not(target_arch = "nvptx64"))]
pub fn head(
    stream: Residual,
    logits: DevicePtr<f32>,
    best: DevicePtr<Best>,
    matrix: Matrix,
    shape: HeadShape,
    blocks: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let refuse = |rule| Err(crate::shape::ShapeError::new("dense_head", rule));
    let columns = crate::shape::multiple("dense_head", shape.columns as usize, 64)?;
    if columns > 4096 {
        return refuse(format!("{columns} columns; it takes up to 4096"));
    }
    if shape.rows == 0 || shape.rows.div_ceil(16) != matrix.groups {
        return refuse(format!("{} rows in {} groups of 16", shape.rows, matrix.groups));
    }
    let prepare = prepare_of(matrix.check("dense_head")?);
    let warps = columns.div_ceil(256);
    let config = cuda_std::launch::LaunchConfig::new(blocks.clamp(1, matrix.groups), 32 * warps)
        .shared(2 * Meeting::bytes(warps))
        .pdl(true);
    Ok(prepare(config, stream, logits, best, matrix, shape))
}
