//! The output projection of attention, added to the residual stream: `x += W a`.
//!
//! `a` is the attention output, f32, `columns` long; `W` lies in tiles; `gain` are the gains of the norm that comes next
//! ([`Residual`]).
//!
//! The blocks also add up the logits of the [`Router`] behind it, if there is one.
//!
//! **Bytes**: the matrix and the router, once. **Shape of the work**: a block for every 16 rows, a warp for every 256 columns (16 warps
//! at 4,096), weights loaded before the wait. Also serves any other projection onto the residual.
//!
//! **Launch**: [`o_proj_residual`].

use super::{
    meeting::Meeting,
    residual::Residual,
    router::Router,
    rows::{Matrix, Place, end_of_room, sixteen_rows, with_tile},
};
use cuda_std::prelude::*;

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $registers:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// Prepare it with [`o_proj_residual`].
        ///
        /// # Safety
        /// The arguments of a launch that [`o_proj_residual`] prepared.
        #[kernel(pdl, registers = $registers)]
        pub unsafe fn $name(
            a: *const f32,
            stream: Residual,
            gain: *const f32,
            matrix: Matrix,
            router: Router,
            columns: u32,
        ) {
            // SAFETY: passed on.
            unsafe { project(a, stream, gain, matrix, router, columns) }
        }
    )*};
}

kernels! {
    /// A projection onto the residual stream.
    decode_project = 72;
    /// The same in fewer registers, at the price of a few in memory: its blocks come to lie beside two of q, k and v. Where
    /// attention has few blocks they are there when these are through.
    decode_project_shallow = 64;
}

/// The kernels' body.
#[inline(always)]
unsafe fn project(a: *const f32, stream: Residual, gain: *const f32, matrix: Matrix, router: Router, columns: u32) {
    thread::touch(columns);
    let at = Place::new(columns / 256);
    let meeting = Meeting::at(0, at.warps);
    let group = thread::block_idx_x();
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        let row = (16 * group + (at.lane & 15)) as usize;
        // A warp that adds to the router's sums finishes the rows for itself.
        // Another one, if there is one, writes them.
        let writer = router.warps().min(at.warps - 1);
        let finishes = at.warp == writer || router.takes(at.warp);
        let gain = if finishes { global::load(gain.add(row)) } else { 0.0 };
        let experts = router.routing.experts;
        let room = shared::dynamic(end_of_room(at.warps, at.blocks, matrix.kind), Router::bytes(experts));
        router.send(room);
        let early = || {
            if finishes {
                global::load(stream.x.as_ptr().add(row))
            } else {
                0.0
            }
        };
        let tiles = matrix.tiles.as_ptr();
        let x = with_tile!(matrix.kind, T => sixteen_rows::<T, true, _>(at, tiles, group, a, meeting, early));
        router.arrived();
        thread::sync_threads();
        if finishes {
            let x = x + meeting.total_of::<8>(at.lane, at.warps);
            if at.warp == writer {
                stream.store(group, at.lane, x, gain);
            }
            router.add_share(x * gain, room, at.lane);
        }
    }
}

/// The launch of `x += W a` for a matrix of `columns` columns; `gain` has a float for each row, `router` a column. `shallow`: the
/// attention before it has few blocks.
///
/// # Errors
/// Columns that are no multiple of 256.
#[cfg(not(target_arch = "nvptx64"))]
pub fn o_proj_residual(
    a: DevicePtr<f32>,
    stream: Residual,
    gain: DevicePtr<f32>,
    matrix: Matrix,
    router: Router,
    columns: u32,
    shallow: bool,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("decode_project", columns as usize, 256)?;
    let warps = super::rows::warps_for(columns, 16);
    let config = cuda_std::launch::LaunchConfig::new(matrix.groups, 32 * warps)
        .shared(end_of_room(warps, columns / 256, matrix.kind) + Router::bytes(router.routing.experts))
        .pdl(true);
    let prepare = if shallow {
        decode_project_shallow::prepare
    } else {
        decode_project::prepare
    };
    Ok(prepare(config, a, stream, gain, matrix, router, columns))
}
