//! Queries, keys and values of one token: `q|k|v = W_{q,k,v} (rms(x) ∘ g) + bias`.
//!
//! `x ∘ g` and `rms(x)` come from the [`Residual`], or x is [`Apart`]; the three matrices lie in tiles, each of its own [`Kind`](super::Kind);
//! `out` gets the rows of q, k and v, one behind the other, f32. The norm is a factor of the result.
//!
//! **Bytes**: the three matrices, once; x ∘ g from L2 for each block. **Shape of the work**: a block for every 16 rows
//! ([`row_group`]); the type is the same for a block, so its branch costs nothing.
//!
//! **Launch**: [`qkv`], [`qkv_apart`].

use super::apart::{Apart, Stream};
use super::matrix::{Matrix, with_kind};
use super::rows::{Place, row_group};
use crate::decode::residual::Residual;
use cuda_std::prelude::*;

/// What a launch multiplies: the three matrices and the constants of the norm.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct QkvShape {
    /// Query, key and value rows.
    pub matrices: [Matrix; 3],
    /// Columns of each, a multiple of 64.
    pub columns: u32,
    /// The norm's epsilon.
    pub eps: f32,
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

/// Queries, keys and values of one token, of any types, with the norm before them folded in.
///
/// Prepare it with [`qkv`].
///
/// # Safety
/// The arguments of a launch that [`qkv`] prepared.
#[kernel(pdl, registers = 80)]
pub unsafe fn dense_qkv(stream: Residual, out: *mut f32, shape: QkvShape) {
    // SAFETY: passed on.
    unsafe { rows(stream, out, shape) }
}

/// The same of a stream whose last addend is apart.
///
/// Prepare it with [`qkv_apart`].
///
/// # Safety
/// The arguments of a launch that [`qkv_apart`] prepared.
#[kernel(pdl, registers = 96)]
pub unsafe fn dense_qkv_apart(stream: Apart, out: *mut f32, shape: QkvShape) {
    // SAFETY: passed on.
    unsafe { rows(stream, out, shape) }
}

/// The kernels' body.
#[inline(always)]
unsafe fn rows(stream: impl Stream, out: *mut f32, shape: QkvShape) {
    thread::touch(shape.columns);
    let at = Place::<1>::new(shape.columns);
    let (matrix, group) = segment(&shape, thread::block_idx_x());
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        let bias = if at.warp == 0 {
            matrix.bias_of(group, at.lane)
        } else {
            0.0
        };
        let tiles = [matrix.tiles.as_ptr()];
        let (known, ()) = with_kind!(matrix.kind, T => row_group::<T, _, _, 1>(at, tiles, group, stream, || ()));
        let met = stream.meet(known, at, shape.eps);
        thread::sync_threads();
        if at.warp == 0 {
            let scale = stream.scale(met, at, shape.eps);
            let sum = at.total(0);
            if at.lane < 16 {
                let row = 16 * thread::block_idx_x() + at.lane;
                global::store(out.add(row as usize), float::fma(sum, scale, bias));
            }
        }
    }
}

/// The launch for `shape`: a stream of `shape.columns` columns, `out` of 16 floats for each row group.
///
/// # Errors
/// Columns that are no multiple of 64, or matrices without a kind.
#[cfg(not(target_arch = "nvptx64"))]
pub fn qkv(
    stream: Residual,
    out: DevicePtr<f32>,
    shape: QkvShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    Ok(dense_qkv::prepare(config(&shape)?, stream, out, shape))
}

/// The same for a stream whose last addend is apart.
///
/// # Errors
/// As [`qkv`]; fewer row groups than the stream has blocks of 256 columns.
#[cfg(not(target_arch = "nvptx64"))]
pub fn qkv_apart(
    stream: Apart,
    out: DevicePtr<f32>,
    shape: QkvShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let config = config(&shape)?;
    Apart::check("dense_qkv_apart", shape.columns, &config)?;
    Ok(dense_qkv_apart::prepare(config, stream, out, shape))
}

#[cfg(not(target_arch = "nvptx64"))]
fn config(shape: &QkvShape) -> Result<cuda_std::launch::LaunchConfig, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("dense_qkv", shape.columns as usize, 64)?;
    for matrix in &shape.matrices {
        matrix.check("dense_qkv")?;
    }
    let groups = shape.matrices.iter().map(|m| m.groups).sum();
    Ok(super::rows::config::<1>(
        groups,
        columns,
        shape.matrices.map(|m| m.kind),
    ))
}
