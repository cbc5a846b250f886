//! The output projection of attention, added to the residual stream: `out = x + W a`.
//!
//! `a` is the attention output, f32, `columns` long; `W` lies in tiles; `x` and `out` have a row each, f32, and may be
//! the same.
//!
//! **Bytes**: the matrix, once, past L1. **Shape of the work**: a block for every 16 rows, a warp for every 256 columns
//! (16 warps at 4,096), weights loaded before the wait. Also serves any other projection onto the residual.
//!
//! **Launch**: [`o_proj_residual`].

use super::{
    ahead::Ahead,
    meeting::Meeting,
    rows::{Matrix, Place, sixteen_rows, with_tile},
};
use cuda_std::prelude::*;

/// A projection onto the residual stream.
///
/// Prepare it with [`o_proj_residual`].
///
/// # Safety
/// The arguments of a launch that [`o_proj_residual`] prepared.
#[kernel(pdl)]
pub unsafe fn decode_project(a: *const f32, x: *const f32, out: *mut f32, matrix: Matrix, columns: u32, ahead: Ahead) {
    let at = Place::new(columns / 256);
    let meeting = Meeting::at(0, at.warps);
    let group = thread::block_idx_x();
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        let row = (16 * group + (at.lane & 15)) as usize;
        let (tiles, none) = (matrix.tiles.as_ptr(), core::ptr::null());
        let early = || if at.warp == 0 { global::load(x.add(row)) } else { 0.0 };
        let residual =
            with_tile!(matrix.kind, T => sixteen_rows::<T, false>(at, tiles, group, a, none, meeting, early));
        ahead.run();
        thread::sync_threads();
        if at.warp == 0 {
            let sum = meeting.total(at.lane, at.warps);
            if at.lane < 16 {
                global::store(out.add(row), residual + sum);
            }
        }
    }
}

/// The launch of `out = x + W a` for a matrix of `columns` columns; `ahead` is brought into L2 meanwhile.
///
/// # Errors
/// Columns that are no multiple of 256.
#[cfg(not(target_arch = "nvptx64"))]
pub fn o_proj_residual(
    a: DevicePtr<f32>,
    x: DevicePtr<f32>,
    out: DevicePtr<f32>,
    matrix: Matrix,
    columns: u32,
    ahead: Ahead,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("decode_project", columns as usize, 256)?;
    let warps = super::rows::warps_for(columns, 16);
    let config = cuda_std::launch::LaunchConfig::new(matrix.groups, 32 * warps)
        .shared(Meeting::bytes(warps))
        .pdl(true);
    Ok(decode_project::prepare(config, a, x, out, matrix, columns, ahead))
}
