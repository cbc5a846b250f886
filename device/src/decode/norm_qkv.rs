//! Queries, keys and values of one token: `q|k|v = W_{q,k,v} (rms(x) ∘ g) [+ bias]`.
//!
//! `x` is the residual stream, f32, `columns` long; `g` the norm's gains; the three matrices lie in tiles of 16 rows ×
//! 256 columns, each of its own type; `out` gets the rows of q, k and v, one behind the other, f32.
//!
//! **Bytes**: the three matrices, once, past L1; x and g from L2 for each block.
//!
//! **Shape of the work**: a block for every 16 rows, a warp for every 256 columns ([`sixteen_rows`]): the tile is loaded
//! before the wait, so what is left behind it is one load of x and gains, the product and two short sums. The
//! type is the same for a block, so its branch costs nothing.
//!
//! **Launch**: [`norm_qkv`].

#[cfg(not(target_arch = "nvptx64"))]
use super::rows::warps_for;
use super::{
    ahead::Ahead,
    meeting::Meeting,
    rows::{Matrix, Place, sixteen_rows, with_tile},
};
use cuda_std::prelude::*;

/// What a launch multiplies: the three matrices and the constants of the norm.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct QkvShape {
    /// Query, key and value rows.
    pub matrices: [Matrix; 3],
    /// Columns of each, a multiple of 256.
    pub columns: u32,
    /// The norm's epsilon.
    pub eps: f32,
    /// Weights to bring into L2 meanwhile.
    pub ahead: Ahead,
}

/// The matrix and the row group in it that block `group` takes.
#[inline(always)]
fn segment(shape: &QkvShape, group: u32) -> (Matrix, u32) {
    let [q, k, v] = shape.matrices;
    if group < q.groups {
        (q, group)
    } else if group < q.groups + k.groups {
        (k, group - q.groups)
    } else {
        (v, group - q.groups - k.groups)
    }
}

/// Queries, keys and values of one token, with the norm before them folded in.
///
/// Prepare it with [`norm_qkv`].
///
/// # Safety
/// The arguments of a launch that [`norm_qkv`] prepared.
#[kernel(pdl)]
pub unsafe fn decode_qkv(x: *const f32, gain: *const f32, bias: *const f32, out: *mut f32, shape: QkvShape) {
    let at = Place::new(shape.columns / 256);
    let meeting = Meeting::at(0, at.warps);
    let (matrix, group) = segment(&shape, thread::block_idx_x());
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        let row = 16 * thread::block_idx_x() + (at.lane & 15);
        let early = || {
            if bias.is_null() {
                0.0
            } else {
                global::load_nc(bias.add(row as usize))
            }
        };
        let tiles = matrix.tiles.as_ptr();
        let bias = with_tile!(matrix.kind, T => sixteen_rows::<T, true>(at, tiles, group, x, gain, meeting, early));
        shape.ahead.run();
        let per_column = float::rcp(shape.columns as f32);
        thread::sync_threads();
        if at.warp == 0 {
            let sum = meeting.total(at.lane, at.warps);
            let scale = meeting.inverse_rms(at.lane, at.warps, per_column, shape.eps);
            if at.lane < 16 {
                global::store(out.add(row as usize), float::fma(sum, scale, bias));
            }
        }
    }
}

/// The launch for `shape`: `x` and `gain` of `shape.columns` floats, `bias` null or as long as `out`, `out` of 16 floats
/// for each row group.
///
/// # Errors
/// Columns that are no multiple of 256.
#[cfg(not(target_arch = "nvptx64"))]
pub fn norm_qkv(
    x: DevicePtr<f32>,
    gain: DevicePtr<f32>,
    bias: DevicePtr<f32>,
    out: DevicePtr<f32>,
    shape: QkvShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("decode_qkv", shape.columns as usize, 256)?;
    let warps = warps_for(columns, 16);
    let groups = shape.matrices.iter().map(|m| m.groups).sum();
    let config = cuda_std::launch::LaunchConfig::new(groups, 32 * warps)
        .shared(Meeting::bytes(warps))
        .pdl(true);
    Ok(decode_qkv::prepare(config, x, gain, bias, out, shape))
}
