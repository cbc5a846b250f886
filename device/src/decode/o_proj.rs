//! The output projection of attention, added to the residual stream: `x += W a`.
//!
//! `a` is the attention output, f32, `columns` long, whole or in [`Parts`] that each warp merges as it reads them; `W` lies in
//! tiles; `gain` are the gains of the norm that comes next ([`Residual`]).
//!
//! The blocks also add up the logits of the [`Router`] behind it, if there is one.
//!
//! **Bytes**: the matrix and the router, once. **Shape of the work**: a block for every 16 rows, a warp for every 256 columns (16 warps
//! at 4,096), weights loaded before the wait. Also serves any other projection onto the residual.
//!
//! **Launch**: [`o_proj_residual`].

use super::{
    attention::Parts,
    columns::Columns,
    marks::{Launch, Point},
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
            // SAFETY: a has all columns.
            let load = |at: Place, block| unsafe { at.columns(a, block) };
            // SAFETY: passed on.
            unsafe { project(load, stream, gain, matrix, router, columns) }
        }
    )*};
}

macro_rules! merging_kernels {
    ($($(#[$doc:meta])* $name:ident = $parts:literal, $registers:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// Prepare it with [`o_proj_residual`].
        ///
        /// # Safety
        /// The arguments of a launch that [`o_proj_residual`] prepared.
        #[kernel(pdl, registers = $registers)]
        pub unsafe fn $name(
            a: Parts,
            stream: Residual,
            gain: *const f32,
            matrix: Matrix,
            router: Router,
            columns: u32,
        ) {
            // SAFETY: there are so many parts, of all columns.
            let load = |at: Place, block| unsafe { a.columns::<$parts>(block, at.lane) };
            // SAFETY: passed on.
            unsafe { project(load, stream, gain, matrix, router, columns) }
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

merging_kernels! {
    /// A projection onto the residual stream of what two clusters a key head left.
    decode_project_2 = 2, 80;
    /// Of what three left.
    decode_project_3 = 3, 80;
    /// Of what four left.
    decode_project_4 = 4, 80;
}

/// The kernels' body; `load` loads a lane's columns of a block of a.
#[inline(always)]
unsafe fn project(
    load: impl Fn(Place, u32) -> Columns,
    stream: Residual,
    gain: *const f32,
    matrix: Matrix,
    router: Router,
    columns: u32,
) {
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
        let load = |block| load(at, block);
        let x = with_tile!(matrix.kind, T => {
            sixteen_rows::<T, true, _>(at, tiles, group, load, meeting, Launch::Project, early)
        });
        router.arrived();
        thread::sync_threads();
        Launch::Project.is_at(Point::Met);
        if finishes {
            let x = x + meeting.total_at_once::<8>(at.lane, at.warps);
            if at.warp == writer {
                stream.store(group, at.lane, x, gain);
            }
            router.add_share(x * gain, room, at.lane);
            Launch::Project.is_at(Point::End);
        }
    }
}

/// Where a projection finds its input.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// In one piece.
    Whole {
        /// Its floats.
        a: DevicePtr<f32>,
        /// The attention before it has few blocks.
        shallow: bool,
    },
    /// In that many parts.
    Parts(Parts, u32),
}

/// The launch of `x += W a` for a matrix of `columns` columns; `gain` has a float for each row, `router` a column.
///
/// # Errors
/// Columns that are no multiple of 256, or parts of another number of them or in a number that there is no kernel for.
#[cfg(not(target_arch = "nvptx64"))]
pub fn o_proj_residual(
    a: Input,
    stream: Residual,
    gain: DevicePtr<f32>,
    matrix: Matrix,
    router: Router,
    columns: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("decode_project", columns as usize, 256)?;
    let warps = super::rows::warps_for(columns, 16);
    let config = cuda_std::launch::LaunchConfig::new(matrix.groups, 32 * warps)
        .shared(end_of_room(warps, columns / 256, matrix.kind) + Router::bytes(router.routing.experts))
        .pdl(true);
    let (parts, count) = match a {
        Input::Whole { a, shallow } => {
            let prepare = if shallow {
                decode_project_shallow::prepare
            } else {
                decode_project::prepare
            };
            return Ok(prepare(config, a, stream, gain, matrix, router, columns));
        }
        Input::Parts(parts, count) => (parts, count),
    };
    let prepare = match count {
        _ if parts.heads << parts.dim_bits != columns => None,
        2 => Some(decode_project_2::prepare as fn(_, _, _, _, _, _, _) -> _),
        3 => Some(decode_project_3::prepare as _),
        4 => Some(decode_project_4::prepare as _),
        _ => None,
    };
    let prepare = prepare.ok_or_else(|| {
        let what = format!("{count} parts of {} heads for {columns} columns", parts.heads);
        crate::shape::ShapeError::new("decode_project", what)
    })?;
    Ok(prepare(config, parts, stream, gain, matrix, router, columns))
}
