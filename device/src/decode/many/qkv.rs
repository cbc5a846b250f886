//! Queries, keys and values of several sequences: [`norm_qkv`](crate::decode::norm_qkv) for each.
//!
//! **Bytes**: the three matrices, once; the streams from L2 for each block. **Shape of the work**: a block for every 16
//! rows, a warp for every 256 columns, four sequences at a time ([`Work`]).
//!
//! **Launch**: [`qkv`].

use super::Streams;
use super::rows::{Work, squares};
use crate::decode::norm_qkv::{QkvShape, segment};
use crate::decode::rows::{Place, with_tile};
use crate::tile::Tile;
use cuda_std::prelude::*;

/// Queries, keys and values of several sequences, with the norm before them folded in.
///
/// Prepare it with [`qkv`].
///
/// # Safety
/// The arguments of a launch that [`qkv`] prepared.
#[kernel(pdl, registers = 80)]
pub unsafe fn many_qkv(streams: Streams, bias: *const f32, out: *mut f32, shape: QkvShape, sequences: u32) {
    thread::touch(sequences);
    let at = Place::new(shape.columns / 256);
    let (matrix, group) = segment(&shape, thread::block_idx_x());
    let row = 16 * thread::block_idx_x() + (at.lane & 15);
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        let early = |sequence: u32| {
            let bias = if bias.is_null() {
                0.0
            } else {
                global::load(bias.add(row as usize))
            };
            (squares(&streams, shape.columns, sequence, sequences, at.lane), bias)
        };
        let finish = |sequence: u32, sum: f32, (squares, bias): (crate::decode::residual::Squares, f32)| {
            let scale = squares.inverse_rms(shape.columns, shape.eps);
            if at.lane < 16 {
                let to = out.add((sequence * 16 * thread::grid_dim_x() + row) as usize);
                global::store(to, float::fma(sum, scale, bias));
            }
        };
        with_tile!(matrix.kind, T => {
            let bytes = group as usize * at.blocks as usize * <T as Tile>::BYTES;
            let work = Work {
                at,
                tiles: matrix.tiles.as_ptr().add(bytes),
                x: streams.first.gained.as_ptr(),
                peaks: streams.peaks.as_ptr(),
                sequences,
            };
            work.run::<T, true, _>(early, finish)
        });
    }
}

/// The launch for `shape` and `sequences` sequences: `bias` null or of 16 floats for each row group, `out` of as many for
/// each sequence.
///
/// # Errors
/// Columns that are no multiple of 256, or sequences that a step does not take.
#[cfg(not(target_arch = "nvptx64"))]
pub fn qkv(
    streams: Streams,
    bias: DevicePtr<f32>,
    out: DevicePtr<f32>,
    shape: QkvShape,
    sequences: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("many_qkv", shape.columns as usize, 256)?;
    let sequences = super::check("many_qkv", sequences)?;
    let warps = crate::decode::rows::warps_for(columns, 16);
    let groups = shape.matrices.iter().map(|m| m.groups).sum();
    let kinds = shape.matrices.map(|m| m.kind);
    let config = cuda_std::launch::LaunchConfig::new(groups, 32 * warps)
        .shared(super::rows::shared_bytes(warps, columns / 256, sequences, kinds))
        .pdl(true);
    Ok(many_qkv::prepare(config, streams, bias, out, shape, sequences))
}
