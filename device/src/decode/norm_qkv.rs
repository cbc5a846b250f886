//! Queries, keys and values of one token: `q|k|v = W_{q,k,v} (rms(x) ∘ g) [+ bias]`.
//!
//! `x ∘ g` and `rms(x)` come from the [`Residual`], `columns` long; the three matrices lie in tiles of 16 rows × 256
//! columns, each of its own type; `out` gets the rows of q, k and v, one behind the other, f32. The norm is a factor of
//! the result: `W (x ∘ g / rms(x))` is `(W (x ∘ g)) / rms(x)`.
//!
//! **Bytes**: the three matrices, once; x ∘ g from L2 for each block.
//!
//! **Shape of the work**: a block for every 16 rows, a warp for every 256 columns ([`sixteen_rows`]): the tile is loaded
//! before the wait, so what is left behind it is one load of x ∘ g, the product and a short sum. The
//! type is the same for a block, so its branch costs nothing.
//!
//! The first launch of a layer, it also clears the layer's [`Routing`].
//!
//! **Launch**: [`norm_qkv`].

#[cfg(not(target_arch = "nvptx64"))]
use super::rows::{shared_bytes, warps_for};
use super::{
    marks::{Launch, Point},
    meeting::Meeting,
    residual::Residual,
    router::Routing,
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
}

/// The matrix and the row group in it that block `group` takes.
#[inline(always)]
pub(super) fn segment(shape: &QkvShape, group: u32) -> (Matrix, u32) {
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
#[kernel(pdl, registers = 56)]
pub unsafe fn decode_qkv(stream: Residual, bias: *const f32, out: *mut f32, routing: Routing, shape: QkvShape) {
    thread::touch(shape.columns);
    let at = Place::new(shape.columns / 256);
    let meeting = Meeting::at(0, at.warps);
    let (matrix, group) = segment(&shape, thread::block_idx_x());
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        let row = (16 * thread::block_idx_x() + (at.lane & 15)) as usize;
        let early = || {
            if at.warp > 0 {
                return (0.0, 0.0);
            }
            let bias = if bias.is_null() {
                0.0
            } else {
                global::load(bias.add(row))
            };
            // While the other warps have the multiprocessor busy: behind the products all would wait for it.
            let squares = stream.squares(shape.columns, at.lane);
            (squares.inverse_rms(shape.columns, shape.eps), bias)
        };
        let (tiles, x) = (matrix.tiles.as_ptr(), stream.gained.as_ptr());
        let load = |block| at.columns(x, block);
        let (scale, bias) = with_tile!(matrix.kind, T => {
            sixteen_rows::<T, false, _>(at, tiles, group, load, meeting, Launch::Qkv, early)
        });
        thread::sync_threads();
        Launch::Qkv.is_at(Point::Met);
        if at.warp == 0 {
            let sum = meeting.total_at_once::<4>(at.lane, at.warps);
            if at.lane < 16 {
                global::store(out.add(row), float::fma(sum, scale, bias));
            }
            Launch::Qkv.is_at(Point::End);
        }
        if thread::block_idx_x() == 0 {
            routing.clear();
        }
    }
}

/// The launch for `shape`: a stream of `shape.columns`, `bias` null or as long as `out`, `out` of 16 floats for each row
/// group; `routing` is that of the layer's experts, if it has any.
///
/// # Errors
/// Columns that are no multiple of 256.
#[cfg(not(target_arch = "nvptx64"))]
pub fn norm_qkv(
    stream: Residual,
    bias: DevicePtr<f32>,
    out: DevicePtr<f32>,
    routing: Routing,
    shape: QkvShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("decode_qkv", shape.columns as usize, 256)?;
    let warps = warps_for(columns, 16);
    let groups = shape.matrices.iter().map(|m| m.groups).sum();
    let config = cuda_std::launch::LaunchConfig::new(groups, 32 * warps)
        .shared(shared_bytes(warps, columns / 256, shape.matrices.map(|m| m.kind)))
        .pdl(true);
    Ok(decode_qkv::prepare(config, stream, bias, out, routing, shape))
}
