//! The chosen experts' down projections, weighted and added to the residual stream:
//! `out = x + Σ_j w_j · D_{e_j} h[j]`.
//!
//! `logits` are the router's, `h` is `[rank][ff]` f32, the matrices lie in tiles, expert after expert; `out` and `x` may
//! be the same.
//!
//! **Bytes**: `used · ff · columns` weights.
//!
//! **Shape of the work**: a block for every 16 rows; its warps share ranks and 256-column blocks, rank by rank (24 warps
//! for 8 experts of 768), so that the sum over experts needs neither atomics nor a second launch, and runs in the order
//! of rank. The logits are complete when this kernel starts, for `gateup` waited for them before it let it start: so the
//! warp finds its expert, its weight and its tile before the wait.
//!
//! **Launch**: [`down_residual`].

use super::{
    gateup::ExpertShape,
    meeting::Meeting,
    rows::{Matrix, Place, multiply, with_tile},
    topk,
};
use crate::tile::Tile;
use cuda_std::prelude::*;

/// Weighted down projections of the chosen experts, onto the residual stream.
///
/// Prepare it with [`down_residual`].
///
/// # Safety
/// The arguments of a launch that [`down_residual`] prepared.
#[kernel(pdl)]
pub unsafe fn decode_down(
    h: *const f32,
    logits: *const f32,
    x: *const f32,
    out: *mut f32,
    down: Matrix,
    shape: ExpertShape,
) {
    let at = Place::new(shape.ff / 256);
    let meeting = Meeting::at(0, at.warps);
    let group = thread::block_idx_x();
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        let row = (16 * group + (at.lane & 15)) as usize;
        // Called behind the wait, so that it is there when the warps have met.
        let early = || if at.warp == 0 { global::load(x.add(row)) } else { 0.0 };
        let residual = with_tile!(down.kind, T => experts::<T>(at, &down, group, h, logits, &shape, meeting, early));
        thread::sync_threads();
        if at.warp == 0 {
            let sum = meeting.total(at.lane, at.warps);
            if at.lane < 16 {
                global::store(out.add(row), residual + sum);
            }
        }
    }
}

/// Row group `group` of every chosen expert; returns what `early` loads. Warp `i` takes column block `i % blocks` of rank `i / blocks`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn experts<T: Tile>(
    at: Place,
    down: &Matrix,
    group: u32,
    h: *const f32,
    logits: *const f32,
    shape: &ExpertShape,
    meeting: Meeting,
    early: impl FnOnce() -> f32,
) -> f32 {
    let blocks = at.blocks.max(1);
    let (rank, block) = (at.warp / blocks, at.warp % blocks);
    // SAFETY: the caller's; the logits are complete, as the module says.
    unsafe {
        let chosen = topk::chosen::<true>(logits, shape.experts, rank, shape.used, at.lane);
        let tile: T = at.tile(down.tiles.as_ptr(), chosen.expert * down.groups + group, block);
        pdl::launch_dependents();
        let scales = tile.scales(at.lane);
        pdl::wait();
        let (x, _) = at.columns::<false>(h.add((rank * shape.ff) as usize), core::ptr::null(), block);
        let early = early();
        let part = multiply(&tile, scales, &x, at.lane);
        meeting.put([part[0] * chosen.weight, part[1] * chosen.weight], at.warp, at.lane);
        early
    }
}

/// The launch for `shape`; `down` is expert 0's, its groups those of one expert.
///
/// # Errors
/// A shape outside the limits that [`ExpertShape`] names, or more than 32 warps of ranks and column blocks.
#[cfg(not(target_arch = "nvptx64"))]
pub fn down_residual(
    h: DevicePtr<f32>,
    logits: DevicePtr<f32>,
    x: DevicePtr<f32>,
    out: DevicePtr<f32>,
    down: Matrix,
    shape: ExpertShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let refuse = |rule| Err(crate::shape::ShapeError::new("decode_down", rule));
    let ff = crate::shape::multiple("decode_down", shape.ff as usize, 256)?;
    topk::check("decode_down", shape.experts, shape.used)?;
    let warps = shape.used * (ff / 256);
    if warps > 32 {
        return refuse(format!(
            "{} experts of {ff} columns, {warps} warps; it takes up to 32",
            shape.used
        ));
    }
    if down.groups * 16 != shape.columns {
        return refuse(format!(
            "down of {} rows; the shape says {}",
            16 * down.groups,
            shape.columns
        ));
    }
    let config = cuda_std::launch::LaunchConfig::new(down.groups, 32 * warps)
        .shared(Meeting::bytes(warps))
        .pdl(true);
    Ok(decode_down::prepare(config, h, logits, x, out, down, shape))
}
