//! The first half of a gated network: `h = f(G n + bias) ∘ (U n + bias)` with `n = x ∘ g / rms(x)` and f one of
//! [`Activation`].
//!
//! `x ∘ g` and `rms(x)` come from the [`Residual`], or x is [`Apart`]; gate and up lie in tiles of one type; `h` has a float for each of
//! their rows.
//!
//! **Bytes**: both matrices, once. **Shape of the work**: a block for every 16 rows of both ([`row_group`]), each matrix
//! with warps of its own.
//!
//! **Launch**: [`gated`], [`gated_apart`].

use super::apart::{Apart, Stream};
use super::matrix::{Matrix, Summed};
use super::rows::{Place, row_group};
use crate::decode::residual::Residual;
use crate::general::gated::Activation;
#[cfg(not(target_arch = "nvptx64"))]
use crate::shape::ShapeError;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::launch::{LaunchConfig, PreparedLaunch};
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
    ($($(#[$doc:meta])* $name:ident = $tile:ident, $stream:ident, $prepare:ident, $registers:literal;)*) => {$(
        $(#[$doc])*
        ///
        #[doc = concat!("Prepare it with [`", stringify!($prepare), "`].")]
        ///
        /// # Safety
        #[doc = concat!("The arguments of a launch that [`", stringify!($prepare), "`] prepared.")]
        #[kernel(pdl, registers = $registers)]
        pub unsafe fn $name(stream: $stream, h: *mut f32, shape: GatedShape) {
            // SAFETY: passed on.
            unsafe { rows::<crate::tile::$tile, _>(stream, h, shape) }
        }
    )*};
}

kernels! {
    /// Gate and up in Q4_0, with norm and activation.
    dense_gated_q4_0 = Q4_0Tile, Residual, gated, 80;
    /// Gate and up in Q4_1, with norm and activation.
    dense_gated_q4_1 = Q4_1Tile, Residual, gated, 80;
    /// Gate and up in Q5_0, with norm and activation.
    dense_gated_q5_0 = Q5_0Tile, Residual, gated, 80;
    /// Gate and up in Q5_1, with norm and activation.
    dense_gated_q5_1 = Q5_1Tile, Residual, gated, 80;
    /// Gate and up in Q8_0, with norm and activation.
    dense_gated_q8_0 = Q8_0Tile, Residual, gated, 80;
    /// Gate and up in Q4_K, with norm and activation.
    dense_gated_q4k = Q4KTile, Residual, gated, 80;
    /// Gate and up in Q5_K, with norm and activation.
    dense_gated_q5k = Q5KTile, Residual, gated, 80;
    /// Gate and up in Q6_K, with norm and activation.
    dense_gated_q6k = Q6KTile, Residual, gated, 80;
    /// Gate and up in Q4_0 of a stream whose last addend is apart.
    dense_gated_apart_q4_0 = Q4_0Tile, Apart, gated_apart, 96;
    /// Gate and up in Q4_1 of a stream whose last addend is apart.
    dense_gated_apart_q4_1 = Q4_1Tile, Apart, gated_apart, 96;
    /// Gate and up in Q5_0 of a stream whose last addend is apart.
    dense_gated_apart_q5_0 = Q5_0Tile, Apart, gated_apart, 96;
    /// Gate and up in Q5_1 of a stream whose last addend is apart.
    dense_gated_apart_q5_1 = Q5_1Tile, Apart, gated_apart, 96;
    /// Gate and up in Q8_0 of a stream whose last addend is apart.
    dense_gated_apart_q8_0 = Q8_0Tile, Apart, gated_apart, 96;
    /// Gate and up in Q4_K of a stream whose last addend is apart.
    dense_gated_apart_q4k = Q4KTile, Apart, gated_apart, 96;
    /// Gate and up in Q5_K of a stream whose last addend is apart.
    dense_gated_apart_q5k = Q5KTile, Apart, gated_apart, 96;
    /// Gate and up in Q6_K of a stream whose last addend is apart.
    dense_gated_apart_q6k = Q6KTile, Apart, gated_apart, 96;
}

/// The kernels' body.
#[inline(always)]
unsafe fn rows<T: Summed, S: Stream>(stream: S, h: *mut f32, shape: GatedShape) {
    thread::touch(shape.columns);
    let at = Place::<2>::new(shape.columns);
    let group = thread::block_idx_x();
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        let mut bias = [0.0; 2];
        if at.warp == 0 {
            bias = [shape.gate.bias_of(group, at.lane), shape.up.bias_of(group, at.lane)];
        }
        let tiles = [shape.gate.tiles.as_ptr(), shape.up.tiles.as_ptr()];
        let (known, ()) = row_group::<T, _, _, 2>(at, tiles, group, stream, || ());
        let met = stream.meet(known, at, shape.eps);
        thread::sync_threads();
        if at.warp == 0 {
            let scale = stream.scale(met, at, shape.eps);
            let sum = |side: usize| {
                let sum = at.total(side as u32);
                float::fma(sum, scale, bias[side])
            };
            let (gate, up) = (sum(0), sum(1));
            if at.lane < 16 {
                let bent = bent(gate, shape.activation == Activation::Silu as u32);
                global::store(h.add((16 * group + at.lane) as usize), bent * up);
            }
        }
    }
}

/// x bent, without a branch: both activations are `x / (1 + e⁻ᵘ)`, with u = x or `√(8/π)·(x + 0.044715·x³)`.
#[inline(always)]
fn bent(x: f32, silu: bool) -> f32 {
    const TWICE_ROOT: f32 = 1.595_769_2;
    let gelu = TWICE_ROOT * float::fma(0.044_715 * x * x, x, x);
    let u = if silu { x } else { gelu };
    x * float::rcp_approx(1.0 + float::exp2_approx(-u * core::f32::consts::LOG2_E))
}

/// The launch for `shape`: a stream of `shape.columns` columns, `h` of 16 floats for each row group.
///
/// # Errors
/// Columns that are no multiple of 64, gate and up of different types or shapes, or without a kind.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gated(stream: Residual, h: DevicePtr<f32>, shape: GatedShape) -> Result<PreparedLaunch, ShapeError> {
    use super::Kind::{Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    let (kind, config) = config(&shape)?;
    let prepare = match kind {
        Q4_0 => dense_gated_q4_0::prepare,
        Q4_1 => dense_gated_q4_1::prepare,
        Q5_0 => dense_gated_q5_0::prepare,
        Q5_1 => dense_gated_q5_1::prepare,
        Q8_0 => dense_gated_q8_0::prepare,
        Q4K => dense_gated_q4k::prepare,
        Q5K => dense_gated_q5k::prepare,
        Q6K => dense_gated_q6k::prepare,
    };
    Ok(prepare(config, stream, h, shape))
}

/// The same for a stream whose last addend is apart.
///
/// # Errors
/// As [`gated`]; fewer row groups than the stream has blocks of 256 columns.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gated_apart(stream: Apart, h: DevicePtr<f32>, shape: GatedShape) -> Result<PreparedLaunch, ShapeError> {
    use super::Kind::{Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    let (kind, config) = config(&shape)?;
    Apart::check("dense_gated_apart", shape.columns, &config)?;
    let prepare = match kind {
        Q4_0 => dense_gated_apart_q4_0::prepare,
        Q4_1 => dense_gated_apart_q4_1::prepare,
        Q5_0 => dense_gated_apart_q5_0::prepare,
        Q5_1 => dense_gated_apart_q5_1::prepare,
        Q8_0 => dense_gated_apart_q8_0::prepare,
        Q4K => dense_gated_apart_q4k::prepare,
        Q5K => dense_gated_apart_q5k::prepare,
        Q6K => dense_gated_apart_q6k::prepare,
    };
    Ok(prepare(config, stream, h, shape))
}

#[cfg(not(target_arch = "nvptx64"))]
fn config(shape: &GatedShape) -> Result<(super::Kind, LaunchConfig), ShapeError> {
    let columns = crate::shape::multiple("dense_gated", shape.columns as usize, 64)?;
    let kind = shape.gate.check("dense_gated")?;
    if (shape.gate.kind, shape.gate.groups) != (shape.up.kind, shape.up.groups) {
        let rule = "gate and up of different types or shapes; it takes one".to_owned();
        return Err(ShapeError::new("dense_gated", rule));
    }
    let config = super::rows::config::<2>(shape.gate.groups, columns, [shape.gate.kind]);
    Ok((kind, config))
}
