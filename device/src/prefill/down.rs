//! Down of every expert for its own tokens: `y[place] = D_e h[place]`.
//!
//! `h` are [`Record`]s of the places with their factors; `y` is `[place][column]` f32, to be added up by
//! [`combine`](super::combine).
//!
//! **Bytes**: down of all experts that have tokens, once for every 32 of them. **Shape of the work**: as
//! [`gateup`](super::gateup).
//!
//! **Launch**: [`down`].

#[cfg(not(target_arch = "nvptx64"))]
use super::gateup::SHARES;
use super::gateup::WARPS;
use super::product::{TOKENS, Tokens, each, row_group, with_tokens};
use super::record::Record;
use crate::decode::gateup::ExpertShape;
use crate::decode::rows::{Matrix, with_tile};
use cuda_std::prelude::*;

/// Down of every expert for its tokens.
///
/// Prepare it with [`down`].
///
/// # Safety
/// The arguments of a launch that [`down`] prepared.
#[kernel(pdl)]
pub unsafe fn prefill_down(
    h: *const u8,
    factors: *const F32x2,
    starts: *const u32,
    y: *mut f32,
    matrix: Matrix,
    shape: ExpertShape,
) {
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let (group, expert) = (thread::block_idx_x() * WARPS + warp, thread::block_idx_y());
    pdl::wait();
    if group >= matrix.groups {
        return;
    }
    let blocks = shape.ff / 256;
    let row = (expert * matrix.groups + group) as usize;
    // SAFETY: the launch has warps for the row groups and blocks for the experts; places are below the last start.
    unsafe {
        let end = global::load(starts.add(expert as usize + 1));
        let mut first = global::load(starts.add(expert as usize)) + thread::block_idx_z() * TOKENS;
        while first < end {
            let count = end - first;
            let tokens = Tokens::new(h, Record::row_bytes(shape.ff), lane, |n| {
                first + if n < count { n } else { 0 }
            });
            let sums = with_tile!(matrix.kind, T => {
                let tiles = matrix.tiles.as_ptr().add(row * blocks as usize * <T as crate::tile::Tile>::BYTES);
                with_tokens!(count, NT => row_group::<T, NT>(tiles, blocks, &tokens, lane))
            });
            each(&sums, count, lane, |n, row, sum| {
                let place = (first + n) as usize;
                let F32x2([factor, _]) = global::load(factors.add(place));
                let to = y.add(place * shape.columns as usize + (16 * group + row) as usize);
                global::store(to, sum * factor);
            });
            first += TOKENS * thread::grid_dim_z();
        }
    }
}

/// The launch for `shape`; `h` and `factors` of the places, `y` of `shape.columns` floats a place.
///
/// # Errors
/// A shape outside the limits that [`ExpertShape`] names, or a matrix of other rows than the shape's columns.
#[cfg(not(target_arch = "nvptx64"))]
pub fn down(
    h: DevicePtr<u8>,
    factors: DevicePtr<F32x2>,
    starts: DevicePtr<u32>,
    y: DevicePtr<f32>,
    matrix: Matrix,
    shape: ExpertShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    crate::shape::multiple("prefill_down", shape.ff as usize, 256)?;
    crate::decode::topk::check("prefill_down", shape.experts, shape.used)?;
    if 16 * matrix.groups != shape.columns {
        let rule = format!("down of {} rows; the shape says {}", 16 * matrix.groups, shape.columns);
        return Err(crate::shape::ShapeError::new("prefill_down", rule));
    }
    let grid = [matrix.groups.div_ceil(WARPS), shape.experts, SHARES];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * WARPS, 1, 1]);
    Ok(prefill_down::prepare(config, h, factors, starts, y, matrix, shape))
}
