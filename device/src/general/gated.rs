//! The bend of a gated feed-forward network.
//!
//! **Computes** `out[i] = f(gate[i])·up[i]` for i < n in f32, f one of [`Activation`]. `out` may be `gate` or `up`. Or, for
//! `ranks` vectors of `width` values each, the same as 16-bit records ([`Wide`]).
//!
//! **Moves** 12 bytes a value, with records 10¼. **Shape of work**: a thread takes every grid-th value; of records, a warp
//! makes one, eight columns a lane, grid y is the rank.
//!
//! **Launch**: [`launch`], [`launch_wide`]; PDL allowed.

use crate::gemv::rank_stride;
use crate::layout::activation::Wide;
use crate::norm::eight;
use crate::tile::Split;
use cuda_std::prelude::*;

/// What bends the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Activation {
    /// `x / (1 + e⁻ˣ)`.
    Silu = 0,
    /// `x/2 · (1 + tanh u)` with `u = √(2/π)·(x + 0.044715·x³)`.
    GeluTanh = 1,
}

/// The activation number `kind` of `x`.
#[inline(always)]
pub(crate) fn bent(x: f32, kind: u32) -> f32 {
    if kind == Activation::Silu as u32 {
        return float::silu(x);
    }
    // (1 + tanh u) / 2 = 1 / (1 + e⁻²ᵘ): no difference of nearly equal numbers.
    const TWICE_ROOT: f32 = 1.595_769_2;
    let u = TWICE_ROOT * float::fma(0.044_715 * x * x, x, x);
    float::div(x, 1.0 + float::exp(-u))
}

/// Gated activation, elementwise.
///
/// # Safety
/// The launch is one of [`launch`]: all three have n values.
#[kernel(pdl)]
pub unsafe fn general_gated(gate: *const f32, up: *const f32, out: *mut f32, n: u32, activation: u32) {
    pdl::launch_dependents();
    pdl::wait();
    let mut i = thread::index_1d();
    while i < n {
        // SAFETY: i < n.
        unsafe {
            let (g, u) = (global::load(gate.add(i as usize)), global::load(up.add(i as usize)));
            global::store(out.add(i as usize), bent(g, activation) * u);
        }
        i += thread::grid_size_1d();
    }
}

/// Gated activation of ranks of values, to 16-bit activations.
///
/// # Safety
/// The launch is one of [`launch_wide`]: gate and up have each rank's values, [`rank_stride`] apart, out its records.
#[kernel(pdl)]
pub unsafe fn general_gated_wide(gate: *const f32, up: *const f32, out: *mut u8, width: u32, activation: u32) {
    let (lane, record, rank) = (thread::thread_idx_x(), thread::block_idx_x(), thread::block_idx_y());
    pdl::launch_dependents();
    pdl::wait();
    let (column, first) = (256 * record + 8 * lane, (rank * rank_stride(width)) as usize);
    // SAFETY: the rank and the record exist.
    unsafe {
        let (mut v, u) = (
            eight(gate.add(first), column, width),
            eight(up.add(first), column, width),
        );
        unroll!(for K in 0..8 {
            v[K] = bent(v[K], activation) * u[K];
        });
        let number = (rank * thread::grid_dim_x() + record) as usize;
        Split::new(v).store(out.add(number * Wide::BYTES), lane);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::{Activation, general_gated, general_gated_wide};
    use crate::shape::{ShapeError, count, multiple};
    use cuda_std::DevicePtr;
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};

    const THREADS: u32 = 128;

    /// The launch for `n` values on at most `max_blocks` blocks.
    ///
    /// # Errors
    /// When there are no values.
    pub fn launch(
        gate: DevicePtr<f32>,
        up: DevicePtr<f32>,
        out: DevicePtr<f32>,
        n: usize,
        activation: Activation,
        max_blocks: u32,
    ) -> Result<PreparedLaunch, ShapeError> {
        let n = count("general_gated", "values", n)?;
        let config = LaunchConfig::new(n.div_ceil(THREADS).min(max_blocks.max(1)), THREADS).pdl(true);
        Ok(general_gated::prepare(config, gate, up, out, n, activation as u32))
    }

    /// The launch for `ranks` vectors of `width` values each, as records: every rank's begin where the last one's end.
    ///
    /// # Errors
    /// A width that is no multiple of 32, no ranks or more than a grid has rows.
    pub fn launch_wide(
        gate: DevicePtr<f32>,
        up: DevicePtr<f32>,
        out: DevicePtr<u8>,
        (ranks, width): (u32, usize),
        activation: Activation,
    ) -> Result<PreparedLaunch, ShapeError> {
        let width = multiple("general_gated_wide", width, 32)?;
        if !(1..=65_535).contains(&ranks) {
            let rule = format!("{ranks} ranks; it takes 1 to 65535");
            return Err(ShapeError::new("general_gated_wide", rule));
        }
        let config = LaunchConfig::shaped([width.div_ceil(256), ranks, 1], [32, 1, 1]).pdl(true);
        Ok(general_gated_wide::prepare(
            config,
            gate,
            up,
            out,
            width,
            activation as u32,
        ))
    }

    /// One value in f64.
    pub fn reference(gate: f32, up: f32, activation: Activation) -> f64 {
        let x = f64::from(gate);
        let bent = match activation {
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::GeluTanh => {
                let u = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x.powi(3));
                0.5 * x * (1.0 + u.tanh())
            }
        };
        bent * f64::from(up)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::{launch, launch_wide, reference};
