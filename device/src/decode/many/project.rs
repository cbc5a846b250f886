//! The output projection of attention onto the streams of several sequences:
//! [`o_proj`](crate::decode::o_proj) for each.
//!
//! **Bytes**: the matrix, once; the attention outputs from L2 for each block. **Shape of the work**: a block for every 16
//! rows, a warp for every 256 columns, four sequences at a time ([`Work`]).
//!
//! **Launch**: [`project`].

use super::Streams;
use super::rows::Work;
use crate::decode::rows::{Matrix, Place, with_tile};
use crate::tile::Tile;
use cuda_std::prelude::*;

/// A projection onto the streams of several sequences.
///
/// Prepare it with [`project`].
///
/// # Safety
/// The arguments of a launch that [`project`] prepared.
#[kernel(pdl)]
pub unsafe fn many_project(
    a: *const f32,
    streams: Streams,
    gain: *const f32,
    matrix: Matrix,
    columns: u32,
    sequences: u32,
) {
    thread::touch(sequences);
    let at = Place::new(columns / 256);
    let (group, width) = (thread::block_idx_x(), 16 * matrix.groups);
    let row = (16 * group + (at.lane & 15)) as usize;
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        let gain = global::load(gain.add(row));
        let early = |sequence: u32| {
            if sequence < sequences {
                global::load(streams.of(width, sequence).x.as_ptr().add(row))
            } else {
                0.0
            }
        };
        let finish = |sequence: u32, sum: f32, x: f32| {
            streams.store((width, sequence), group, at.lane, x + sum, gain);
        };
        with_tile!(matrix.kind, T => {
            let bytes = group as usize * at.blocks as usize * <T as Tile>::BYTES;
            let work = Work {
                at,
                tiles: matrix.tiles.as_ptr().add(bytes),
                x: a,
                peaks: core::ptr::null(),
                sequences,
            };
            work.run::<T, false, _>(early, finish)
        });
    }
}

/// The launch of `x += W a` for a matrix of `columns` columns and `sequences` sequences; `gain` has a float for each row.
///
/// # Errors
/// Columns that are no multiple of 256, or sequences that a step does not take.
#[cfg(not(target_arch = "nvptx64"))]
pub fn project(
    a: DevicePtr<f32>,
    streams: Streams,
    gain: DevicePtr<f32>,
    matrix: Matrix,
    columns: u32,
    sequences: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("many_project", columns as usize, 256)?;
    let sequences = super::check("many_project", sequences)?;
    let warps = crate::decode::rows::warps_for(columns, 16);
    let shared = super::rows::shared_bytes(warps, columns / 256, sequences, [matrix.kind]);
    let config = cuda_std::launch::LaunchConfig::new(matrix.groups, 32 * warps)
        .shared(shared)
        .pdl(true);
    Ok(many_project::prepare(
        config, a, streams, gain, matrix, columns, sequences,
    ))
}
