//! A matrix times a vector, added to the residual stream or left apart: `x = onto + W a + bias`.
//!
//! `a` is f32, `columns` long and zero from there to whole tiles; `W` lies in tiles. What is left is a [`Residual`]: x,
//! `x ∘ gain` (x where there are no gains) and sums of squares, as the norm that comes next wants them. `onto` may be the
//! stream's own x, or null.
//!
//! **Bytes**: the matrix, once. **Shape of the work**: a block for every 16 rows ([`row_group`]). Output projections and
//! the second half of networks.
//!
//! **Launch**: [`project`].

use super::matrix::{Matrix, Summed};
use super::rows::{Place, row_group};
use crate::decode::residual::Residual;
use cuda_std::prelude::*;

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $tile:ident, $kind:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// Prepare it with [`project`].
            ///
            /// # Safety
            /// The arguments of a launch that [`project`] prepared.
            #[kernel(pdl, registers = 72)]
            pub unsafe fn $name(
                a: *const f32,
                onto: *const f32,
                to: Residual,
                gain: *const f32,
                matrix: Matrix,
                columns: u32,
            ) {
                // SAFETY: passed on.
                unsafe { rows::<crate::tile::$tile>(a, onto, to, gain, matrix, columns) }
            }
        )*

        /// The launch of a kind's kernel.
        #[cfg(not(target_arch = "nvptx64"))]
        fn prepare_of(kind: super::Kind) -> Prepare {
            match kind {
                $(super::Kind::$kind => $name::prepare,)*
            }
        }
    };
}

kernels! {
    /// A Q4_0 matrix times a vector, onto the residual stream.
    dense_project_q4_0 = Q4_0Tile, Q4_0;
    /// A Q4_1 matrix times a vector, onto the residual stream.
    dense_project_q4_1 = Q4_1Tile, Q4_1;
    /// A Q5_0 matrix times a vector, onto the residual stream.
    dense_project_q5_0 = Q5_0Tile, Q5_0;
    /// A Q5_1 matrix times a vector, onto the residual stream.
    dense_project_q5_1 = Q5_1Tile, Q5_1;
    /// A Q8_0 matrix times a vector, onto the residual stream.
    dense_project_q8_0 = Q8_0Tile, Q8_0;
    /// A Q4_K matrix times a vector, onto the residual stream.
    dense_project_q4k = Q4KTile, Q4K;
    /// A Q5_K matrix times a vector, onto the residual stream.
    dense_project_q5k = Q5KTile, Q5K;
    /// A Q6_K matrix times a vector, onto the residual stream.
    dense_project_q6k = Q6KTile, Q6K;
}

/// The kernels' body.
#[inline(always)]
unsafe fn rows<T: Summed>(
    a: *const f32,
    onto: *const f32,
    to: Residual,
    gain: *const f32,
    matrix: Matrix,
    columns: u32,
) {
    thread::touch(columns);
    let at = Place::<1>::new(columns);
    let group = thread::block_idx_x();
    let row = (16 * group + (at.lane & 15)) as usize;
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        let (mut gained, mut bias) = (1.0, 0.0);
        if at.warp == 0 {
            bias = matrix.bias_of(group, at.lane);
            if !gain.is_null() {
                gained = global::load(gain.add(row));
            }
        }
        let early = || {
            if at.warp == 0 && !onto.is_null() {
                global::load(onto.add(row))
            } else {
                0.0
            }
        };
        let ((), before) = row_group::<T, _, _, 1>(at, [matrix.tiles.as_ptr()], group, a, early);
        thread::sync_threads();
        if at.warp == 0 {
            let x = before + (at.total(0) + bias);
            to.store(group, at.lane, x, gained);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
type Prepare = fn(
    cuda_std::launch::LaunchConfig,
    DevicePtr<f32>,
    DevicePtr<f32>,
    Residual,
    DevicePtr<f32>,
    Matrix,
    u32,
) -> cuda_std::launch::PreparedLaunch;

/// The launch of `to = onto + W a + bias` for a matrix of `columns` columns; `onto` and `gain` are null or have a float
/// for each row.
///
/// # Errors
/// Columns that are no multiple of 32, or a matrix without a kind.
#[cfg(not(target_arch = "nvptx64"))]
pub fn project(
    a: DevicePtr<f32>,
    onto: DevicePtr<f32>,
    to: Residual,
    gain: DevicePtr<f32>,
    matrix: Matrix,
    columns: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("dense_project", columns as usize, 32)?;
    let prepare = prepare_of(matrix.check("dense_project")?);
    let config = super::rows::config::<1>(matrix.groups, columns, [matrix.kind]);
    Ok(prepare(config, a, onto, to, gain, matrix, columns))
}
