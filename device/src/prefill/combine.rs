//! The experts' outputs of a prompt's tokens, weighted and added to the residual stream:
//! `x[i] += Σ_rank weights[i][rank] · y[places[i · used + rank]]`, in the order of rank.
//!
//! **Bytes**: `4 · used · columns` a token. **Shape of the work**: a block a token, a thread four columns at a time.
//!
//! **Launches**: [`combine`]; [`take_row`] copies one token's row to where the head reads it.

use cuda_std::prelude::*;

/// Threads of a block.
const THREADS: u32 = 256;

/// The weighted outputs of a prompt's experts, onto the residual stream.
///
/// Prepare it with [`combine`].
///
/// # Safety
/// The arguments of a launch that [`combine`] prepared.
#[kernel(pdl)]
pub unsafe fn prefill_combine(
    y: *const f32,
    places: *const u32,
    weights: *const f32,
    x: *mut f32,
    used: u32,
    columns: u32,
) {
    let token = thread::block_idx_x();
    let mut i = thread::thread_idx_x();
    pdl::wait();
    while i < columns / 4 {
        // SAFETY: the launch has a block for each token; a token has `used` places and weights.
        unsafe {
            let to = x.add(token as usize * columns as usize).cast::<F32x4>().add(i as usize);
            let mut sum = [0.0; 4];
            let mut rank = 0;
            while rank < used {
                let pair = (token * used + rank) as usize;
                let (place, weight) = (global::load(places.add(pair)), global::load(weights.add(pair)));
                let row = y.add(place as usize * columns as usize).cast::<F32x4>();
                let v = global::load(row.add(i as usize)).0;
                unroll!(for I in 0..4 {
                    sum[I] = float::fma(weight, v[I], sum[I]);
                });
                rank += 1;
            }
            let x = global::load(to).0;
            let sum = [x[0] + sum[0], x[1] + sum[1], x[2] + sum[2], x[3] + sum[3]];
            global::store(to, F32x4(sum));
        }
        i += THREADS;
    }
}

/// One row of many, copied.
///
/// Prepare it with [`take_row`].
///
/// # Safety
/// The arguments of a launch that [`take_row`] prepared.
#[kernel(pdl)]
pub unsafe fn prefill_take_row(rows: *const f32, out: *mut f32, row: u32, columns: u32) {
    let i = thread::index_1d();
    pdl::wait();
    if i < columns {
        // SAFETY: the row exists, and the column in it.
        unsafe {
            let value = global::load(rows.add(row as usize * columns as usize + i as usize));
            global::store(out.add(i as usize), value);
        }
    }
}

/// The launch for `tokens` tokens that use `used` experts each.
///
/// # Errors
/// Columns that are no multiple of 4, or no tokens.
#[cfg(not(target_arch = "nvptx64"))]
pub fn combine(
    y: DevicePtr<f32>,
    places: DevicePtr<u32>,
    weights: DevicePtr<f32>,
    x: DevicePtr<f32>,
    used: u32,
    tokens: u32,
    columns: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("prefill_combine", columns as usize, 4)?;
    let tokens = crate::shape::count("prefill_combine", "tokens", tokens as usize)?;
    let config = cuda_std::launch::LaunchConfig::new(tokens, THREADS);
    Ok(prefill_combine::prepare(config, y, places, weights, x, used, columns))
}

/// The launch that copies row `row` of `columns` floats to `out`.
///
/// # Errors
/// No columns.
#[cfg(not(target_arch = "nvptx64"))]
pub fn take_row(
    rows: DevicePtr<f32>,
    out: DevicePtr<f32>,
    row: u32,
    columns: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::count("prefill_take_row", "columns", columns as usize)?;
    let config = cuda_std::launch::LaunchConfig::new(columns.div_ceil(THREADS), THREADS);
    Ok(prefill_take_row::prepare(config, rows, out, row, columns))
}
