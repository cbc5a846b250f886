//! The norm behind an operation, for a prompt's tokens: `x += y ∘ p / rms(y)`.
//!
//! **Bytes**: 12 a column. **Shape of the work**: a block of four warps a token, a thread every 128th column.
//!
//! **Launch**: [`post`].

use super::split::{WARPS, of_block};
use cuda_std::prelude::*;

/// Adds a normed result to the residual stream of each token.
///
/// Prepare it with [`post`].
///
/// # Safety
/// The arguments of a launch that [`post`] prepared.
#[kernel(pdl)]
pub unsafe fn prefill_post(x: *mut f32, y: *const f32, gain: *const f32, columns: u32, eps: f32) {
    let (id, row) = (thread::thread_idx_x(), thread::block_idx_x() as usize);
    let (x, y) = (
        x.wrapping_add(row * columns as usize),
        y.wrapping_add(row * columns as usize),
    );
    pdl::wait();
    let (mut squares, mut column) = (0.0, id);
    // SAFETY: the launch has a block for each row.
    unsafe {
        while column < columns {
            let v = global::load(y.add(column as usize));
            squares = float::fma(v, v, squares);
            column += 32 * WARPS;
        }
        let (squares, _) = of_block(squares, 0.0, warp::lane(), id / 32);
        let scale = float::rsqrt_approx(float::fma(squares, float::rcp(columns as f32), eps));
        column = id;
        while column < columns {
            let at = column as usize;
            let (v, g) = (global::load(y.add(at)), global::load(gain.add(at)));
            global::store(x.add(at), float::fma(v * scale, g, global::load(x.add(at))));
            column += 32 * WARPS;
        }
    }
}

/// The launch for `rows` tokens of `columns` columns.
///
/// # Errors
/// No rows or no columns.
#[cfg(not(target_arch = "nvptx64"))]
pub fn post(
    x: DevicePtr<f32>,
    y: DevicePtr<f32>,
    gain: DevicePtr<f32>,
    (rows, columns): (u32, u32),
    eps: f32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let rows = crate::shape::count("prefill_post", "rows", rows as usize)?;
    let columns = crate::shape::count("prefill_post", "columns", columns as usize)?;
    let config = cuda_std::launch::LaunchConfig::new(rows, 32 * WARPS).shared(8 * WARPS);
    Ok(prefill_post::prepare(config, x, y, gain, columns, eps))
}
