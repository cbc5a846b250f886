//! The first half of a gated network: `h = f(G n + bias) ∘ (U n + bias)` with `n = x ∘ g / rms(x)` and f one of
//! [`Activation`].
//!
//! `x ∘ g` and `rms(x)` come from the [`Residual`]; gate and up lie in tiles of one type; `h` has a float for each of
//! their rows.
//!
//! **Bytes**: both matrices, once. **Shape of the work**: a block for every 16 rows of both ([`row_group`]), each matrix
//! with warps of its own.
//!
//! **Launch**: [`gated`].

use super::matrix::{Matrix, Summed};
use super::rows::{Place, row_group};
use crate::decode::residual::{Residual, Squares};
use crate::general::gated::{Activation, bent};
use cuda_std::prelude::*;

/// What a launch multiplies, and how.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct GatedShape {
    /// Gate.
    pub gate: Matrix,
    /// Up, of the same type and shape.
    pub up: Matrix,
    /// Columns of both, a multiple of 64.
    pub columns: u32,
    /// The norm's epsilon.
    pub eps: f32,
    /// An [`Activation`].
    pub activation: u32,
    /// Zero; keeps the size a multiple of 8.
    pub reserved: u32,
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $tile:ident, $kind:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// Prepare it with [`gated`].
            ///
            /// # Safety
            /// The arguments of a launch that [`gated`] prepared.
            #[kernel(pdl, registers = 80)]
            pub unsafe fn $name(stream: Residual, h: *mut f32, shape: GatedShape) {
                // SAFETY: passed on.
                unsafe { rows::<crate::tile::$tile>(stream, h, shape) }
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
    /// Gate and up in Q4_0, with norm and activation.
    dense_gated_q4_0 = Q4_0Tile, Q4_0;
    /// Gate and up in Q4_1, with norm and activation.
    dense_gated_q4_1 = Q4_1Tile, Q4_1;
    /// Gate and up in Q5_0, with norm and activation.
    dense_gated_q5_0 = Q5_0Tile, Q5_0;
    /// Gate and up in Q5_1, with norm and activation.
    dense_gated_q5_1 = Q5_1Tile, Q5_1;
    /// Gate and up in Q8_0, with norm and activation.
    dense_gated_q8_0 = Q8_0Tile, Q8_0;
    /// Gate and up in Q4_K, with norm and activation.
    dense_gated_q4k = Q4KTile, Q4K;
    /// Gate and up in Q5_K, with norm and activation.
    dense_gated_q5k = Q5KTile, Q5K;
    /// Gate and up in Q6_K, with norm and activation.
    dense_gated_q6k = Q6KTile, Q6K;
}

/// The kernels' body.
#[inline(always)]
unsafe fn rows<T: Summed>(stream: Residual, h: *mut f32, shape: GatedShape) {
    thread::touch(shape.columns);
    let at = Place::<2>::new(shape.columns);
    let group = thread::block_idx_x();
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        let mut bias = [0.0; 2];
        if at.warp == 0 {
            bias = [shape.gate.bias_of(group, at.lane), shape.up.bias_of(group, at.lane)];
        }
        let early = || {
            if at.warp == 0 {
                stream.squares(shape.columns, at.lane)
            } else {
                Squares::NONE
            }
        };
        let tiles = [shape.gate.tiles.as_ptr(), shape.up.tiles.as_ptr()];
        let squares = row_group::<T, 2, _>(at, tiles, group, stream.gained.as_ptr(), early);
        let scale = if at.warp == 0 {
            squares.inverse_rms(shape.columns, shape.eps)
        } else {
            0.0
        };
        thread::sync_threads();
        if at.warp == 0 {
            let sum = |side: usize| {
                let sum = at.meeting(side as u32).total(at.lane, at.warps);
                float::fma(sum, scale, bias[side])
            };
            let (gate, up) = (sum(0), sum(1));
            if at.lane < 16 {
                let bent = if shape.activation == Activation::Silu as u32 {
                    float::silu_approx(gate)
                } else {
                    bent(gate, shape.activation)
                };
                global::store(h.add((16 * group + at.lane) as usize), bent * up);
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
type Prepare =
    fn(cuda_std::launch::LaunchConfig, Residual, DevicePtr<f32>, GatedShape) -> cuda_std::launch::PreparedLaunch;

/// The launch for `shape`: a stream of `shape.columns` columns, `h` of 16 floats for each row group.
///
/// # Errors
/// Columns that are no multiple of 64, gate and up of different types or shapes, or without a kind.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gated(
    stream: Residual,
    h: DevicePtr<f32>,
    shape: GatedShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("dense_gated", shape.columns as usize, 64)?;
    let prepare = prepare_of(shape.gate.check("dense_gated")?);
    if (shape.gate.kind, shape.gate.groups) != (shape.up.kind, shape.up.groups) {
        let rule = "gate and up of different types or shapes; it takes one".to_owned();
        return Err(crate::shape::ShapeError::new("dense_gated", rule));
    }
    let config = super::rows::config::<2>(shape.gate.groups, columns, [shape.gate.kind]);
    Ok(prepare(config, stream, h, shape))
}
