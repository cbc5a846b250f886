//! Router logits: `out[e] = w_e · (x ∘ g) / rms(x)`, the router in f32 as in the file.
//!
//! **Bytes**: `4 · experts · columns` (1 MB for 128 experts of 2,048 columns): a stage of its own, since recomputing it in
//! every block of the next one would read it more than a hundred times from L2.
//!
//! **Shape of the work**: a block of four warps for every expert; a thread takes 16-byte vectors 128 apart, the first
//! four of them (2,048 columns) before the wait. The norm is a factor of the result.
//!
//! It also clears the words of [`Choices`] for the launches that follow.
//!
//! **Launch**: [`norm_router`].

use super::choices::Choices;
use super::residual::{Residual, Squares};
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// Threads of a block.
const THREADS: u32 = 128;
/// Vectors of a row that a thread loads before the wait.
const EARLY: usize = 4;

/// Vector `i` of a row; zero past the end.
#[inline(always)]
unsafe fn vector(row: *const f32, i: u32, vectors: u32) -> F32x4 {
    if i >= vectors {
        return F32x4([0.0; 4]);
    }
    // SAFETY: the vector exists.
    unsafe { global::load_once(row.cast::<F32x4>().add(i as usize)) }
}

/// `sum + w · x`.
#[inline(always)]
fn dot(F32x4(w): F32x4, F32x4(x): F32x4, sum: f32) -> f32 {
    float::fma(
        x[0],
        w[0],
        float::fma(x[1], w[1], float::fma(x[2], w[2], float::fma(x[3], w[3], sum))),
    )
}

/// Router logits of one token, with the norm before them folded in.
///
/// Prepare it with [`norm_router`].
///
/// # Safety
/// The arguments of a launch that [`norm_router`] prepared.
#[kernel(pdl)]
pub unsafe fn decode_router(
    router: *const f32,
    stream: Residual,
    out: *mut f32,
    choices: Choices,
    length: u32,
    eps: f32,
) {
    thread::touch(length);
    let (id, vectors) = (thread::thread_idx_x(), length / 4);
    let row = router.wrapping_add(thread::block_idx_x() as usize * length as usize);
    // SAFETY: the launch has a block for each expert; the vectors are as long as the shape says.
    unsafe {
        let mut first = [F32x4([0.0; 4]); EARLY];
        unroll!(for I in 0..4 {
            first[I] = vector(row, id + THREADS * I as u32, vectors);
        });
        pdl::launch_dependents();
        pdl::wait();
        let x = stream.gained.as_ptr().cast::<F32x4>();
        let mut columns = [F32x4([0.0; 4]); EARLY];
        unroll!(for I in 0..4 {
            let i = id + THREADS * I as u32;
            if i < vectors {
                columns[I] = global::load(x.add(i as usize));
            }
        });
        let squares = if id < 32 {
            stream.squares(length, id)
        } else {
            Squares::NONE
        };
        let mut sum = 0.0;
        unroll!(for I in 0..4 {
            sum = dot(first[I], columns[I], sum);
        });
        let mut i = id + THREADS * EARLY as u32;
        while i < vectors {
            sum = dot(vector(row, i, vectors), global::load(x.add(i as usize)), sum);
            i = rolled(i + THREADS);
        }
        if thread::block_idx_x() == 0 && id < 32 {
            choices.clear(id);
        }
        finish(sum, squares, out, length, eps);
    }
}

/// Adds up the block's parts and stores the logit.
#[inline(always)]
unsafe fn finish(mut sum: f32, squares: Squares, out: *mut f32, length: u32, eps: f32) {
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let parts: Shared<f32> = shared::dynamic(0, THREADS / 32);
    unroll!(for I in 0..5 {
        sum += warp::shuffle_xor(sum, 16 >> I);
    });
    if lane == 0 {
        parts.store(warp, sum);
    }
    let scale = if warp == 0 {
        squares.inverse_rms(length, eps)
    } else {
        0.0
    };
    thread::sync_threads();
    if thread::thread_idx_x() == 0 {
        let F32x4([a, b, c, d]) = parts.cast::<F32x4>().load(0);
        // SAFETY: the output has an element for each expert.
        unsafe { global::store(out.add(thread::block_idx_x() as usize), ((a + b) + (c + d)) * scale) };
    }
}

/// The launch for `experts` rows of `columns` columns, as long as the stream.
///
/// # Errors
/// Columns that are no multiple of 256, or no experts.
#[cfg(not(target_arch = "nvptx64"))]
pub fn norm_router(
    router: DevicePtr<f32>,
    stream: Residual,
    out: DevicePtr<f32>,
    choices: Choices,
    experts: u32,
    columns: u32,
    eps: f32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("decode_router", columns as usize, 256)?;
    let experts = crate::shape::count("decode_router", "experts", experts as usize)?;
    let config = cuda_std::launch::LaunchConfig::new(experts, THREADS)
        .shared(THREADS / 32 * 4)
        .pdl(true);
    Ok(decode_router::prepare(
        config, router, stream, out, choices, columns, eps,
    ))
}
