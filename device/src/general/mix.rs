//! The weighted sum of a token's experts.
//!
//! **Computes** `out[c] = Σ_k weights[k]·y[k·stride + c] + σ(gate)·shared[c]` for c < columns, the ranks in order, f32.
//! Without weights all are 1; without `shared` the last term is left out, without `gate` its factor is 1. One rank and
//! one weight is a scaling.
//!
//! **Moves** 4 bytes a column and rank. **Shape of work**: a thread takes a column.
//!
//! **Launch**: [`launch`]; PDL allowed.

use crate::gemv::rank_stride;
use cuda_std::prelude::*;

/// What is added up.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Mix {
    /// The ranks' values, each rank's [`rank_stride`] of the columns behind the last one's.
    pub y: DevicePtr<f32>,
    /// A weight for each rank; null: 1.
    pub weights: DevicePtr<f32>,
    /// Values that are added with the gate's weight; null: none.
    pub shared: DevicePtr<f32>,
    /// One value, whose sigmoid multiplies `shared`; null: 1.
    pub shared_gate: DevicePtr<f32>,
    /// Number of ranks.
    pub ranks: u32,
    /// Values of each.
    pub columns: u32,
}

/// Weighted sum of expert results in the order of their ranks.
///
/// # Safety
/// The launch is one of [`launch`]: everything that `mix` points to is there, `out` has its columns.
#[kernel(pdl)]
pub unsafe fn general_mix(mix: Mix, out: *mut f32) {
    pdl::launch_dependents();
    pdl::wait();
    let column = thread::index_1d();
    if column >= mix.columns {
        return;
    }
    let (mut sum, mut rank) = (0f32, 0);
    // SAFETY: the column and the ranks exist.
    unsafe {
        while rank < mix.ranks {
            let value = global::load(mix.y.as_ptr().add((rank * rank_stride(mix.columns) + column) as usize));
            let weight = if mix.weights.is_null() {
                1.0
            } else {
                global::load(mix.weights.as_ptr().add(rank as usize))
            };
            sum = float::fma(weight, value, sum);
            rank += 1;
        }
        if !mix.shared.is_null() {
            let factor = if mix.shared_gate.is_null() {
                1.0
            } else {
                float::div(1.0, 1.0 + float::exp(-global::load(mix.shared_gate.as_ptr())))
            };
            sum = float::fma(factor, global::load(mix.shared.as_ptr().add(column as usize)), sum);
        }
        global::store(out.add(column as usize), sum);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::{Mix, general_mix};
    use crate::shape::{ShapeError, count};
    use cuda_std::DevicePtr;
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};

    const THREADS: u32 = 128;

    /// The launch of a sum.
    ///
    /// # Errors
    /// No columns or no ranks.
    pub fn launch(mix: Mix, out: DevicePtr<f32>) -> Result<PreparedLaunch, ShapeError> {
        let columns = count("general_mix", "columns", mix.columns as usize)?;
        count("general_mix", "ranks", mix.ranks as usize)?;
        let config = LaunchConfig::new(columns.div_ceil(THREADS), THREADS).pdl(true);
        Ok(general_mix::prepare(config, mix, out))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::launch;
