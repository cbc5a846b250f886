//! The streams of several sequences of which x is there: [`residual`](crate::decode::residual) for each.
//!
//! **Launch**: [`enter`].

use super::Streams;
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 4;

/// `x ∘ gain` and the sums of squares of the streams.
///
/// Prepare it with [`enter`].
///
/// # Safety
/// The arguments of a launch that [`enter`] prepared.
#[kernel(pdl)]
pub unsafe fn many_enter(streams: Streams, gain: *const f32, columns: u32) {
    let group = thread::block_idx_x() * WARPS + thread::thread_idx_x() / 32;
    let lane = warp::lane();
    let sequence = thread::block_idx_y();
    let at = (16 * group + (lane & 15)) as usize;
    // SAFETY: the launch has a warp for every 16 columns.
    unsafe {
        let gain = global::load(gain.add(at));
        pdl::launch_dependents();
        pdl::wait();
        let x = global::load(streams.of(columns, sequence).x.as_ptr().add(at));
        streams.store((columns, sequence), group, lane, x, gain);
    }
}

/// The launch that completes `sequences` streams of `columns` columns for a norm of these gains.
///
/// # Errors
/// Columns that are no multiple of 256, or sequences that a step does not take.
#[cfg(not(target_arch = "nvptx64"))]
pub fn enter(
    streams: Streams,
    gain: DevicePtr<f32>,
    columns: u32,
    sequences: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("many_enter", columns as usize, 256)?;
    let sequences = super::check("many_enter", sequences)?;
    let grid = [columns / (16 * WARPS), sequences, 1];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * WARPS, 1, 1]).pdl(true);
    Ok(many_enter::prepare(config, streams, gain, columns))
}
