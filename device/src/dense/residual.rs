//! The residual stream where no projection completes it: `x += y ∘ p / rms(y)`, then what the next norm wants.
//!
//! y is what a projection left apart ([`project`](super::project)), p the gains of the norm behind the operation; without y
//! x stays as it is, which completes the stream of an embedding or of a prompt's last token.
//!
//! **Bytes**: a few KB from L2. **Shape of the work**: a thread a column, blocks of 64: all that it costs is its launch.
//!
//! **Launch**: [`residual`].

use crate::decode::residual::{Residual, sum_of_16};
use cuda_std::prelude::*;

/// Threads of a block, a column each.
const THREADS: u32 = 64;

/// A result with a norm behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Post {
    /// The result and its sums of squares; x is null where there is none.
    pub y: Residual,
    /// The gains.
    pub gain: DevicePtr<f32>,
    /// The norm's epsilon.
    pub eps: f32,
    /// Zero; keeps the size a multiple of 8.
    pub reserved: u32,
}

impl Post {
    /// No result.
    pub const NONE: Self = Self {
        y: Residual {
            x: DevicePtr::null(),
            gained: DevicePtr::null(),
            squares: DevicePtr::null(),
        },
        gain: DevicePtr::null(),
        eps: 0.0,
        reserved: 0,
    };
}

/// The residual stream, with a normed result added, ready for the next norm.
///
/// Prepare it with [`residual`].
///
/// # Safety
/// The arguments of a launch that [`residual`] prepared.
#[kernel(pdl)]
pub unsafe fn dense_residual(stream: Residual, gain: *const f32, post: Post, columns: u32) {
    let column = (thread::block_idx_x() * THREADS + thread::thread_idx_x()) as usize;
    // SAFETY: the launch has a thread for each column.
    unsafe {
        let gain = global::load(gain.add(column));
        let after = if post.y.x.is_null() {
            0.0
        } else {
            global::load(post.gain.as_ptr().add(column))
        };
        pdl::launch_dependents();
        pdl::wait();
        let mut x = global::load(stream.x.as_ptr().add(column));
        if !post.y.x.is_null() {
            let y = global::load(post.y.x.as_ptr().add(column));
            let scale = post.y.squares(columns, warp::lane()).inverse_rms(columns, post.eps);
            x = float::fma(y * scale, after, x);
            global::store(stream.x.as_mut_ptr().add(column), x);
        }
        global::store(stream.gained.as_mut_ptr().add(column), x * gain);
        let squares = sum_of_16(x * x);
        if column.is_multiple_of(16) {
            global::store(stream.squares.as_mut_ptr().add(column / 16), squares);
        }
    }
}

/// The launch that adds `post` to a stream of `columns` columns and makes it ready for a norm of these gains.
///
/// # Errors
/// Columns that are no multiple of 64.
#[cfg(not(target_arch = "nvptx64"))]
pub fn residual(
    stream: Residual,
    gain: DevicePtr<f32>,
    post: Post,
    columns: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("dense_residual", columns as usize, THREADS as usize)?;
    let config = cuda_std::launch::LaunchConfig::new(columns / THREADS, THREADS).pdl(true);
    Ok(dense_residual::prepare(config, stream, gain, post, columns))
}
