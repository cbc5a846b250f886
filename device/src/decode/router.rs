//! Router logits: `out[e] = w_e · (rms(x) ∘ g)`, the router in f32 as in the file.
//!
//! **Bytes**: `4 · experts · columns` (1 MB for 128 experts of 2,048 columns): a stage of its own, since recomputing it in
//! every block of the next one would read it more than a hundred times from L2.
//!
//! **Shape of the work**: a block of four warps for every expert; a thread takes 16-byte vectors 128 apart, the first
//! four of them (2,048 columns) with their gains before the wait. The norm is a factor of the result.
//!
//! **Launch**: [`norm_router`].

use super::ahead::Ahead;
use cuda_std::prelude::*;

/// Threads of a block.
const THREADS: u32 = 128;

/// A vector of four columns of a row, times its gains.
#[derive(Clone, Copy)]
struct Weighted(F32x4);

impl Weighted {
    /// Vector `i` of a row and of the gains; zero past the end.
    #[inline(always)]
    unsafe fn load(row: *const f32, gain: *const f32, i: u32, vectors: u32) -> (F32x4, F32x4) {
        if i >= vectors {
            return (F32x4([0.0; 4]), F32x4([0.0; 4]));
        }
        // SAFETY: the vector exists.
        unsafe {
            (
                global::load_stream(row.cast::<F32x4>().add(i as usize)),
                global::load_nc(gain.cast::<F32x4>().add(i as usize)),
            )
        }
    }

    #[inline(always)]
    fn new((w, g): (F32x4, F32x4)) -> Self {
        let (w, g) = (w.0, g.0);
        Self(F32x4([w[0] * g[0], w[1] * g[1], w[2] * g[2], w[3] * g[3]]))
    }

    /// Adds to the dot product and to the sum of squares.
    #[inline(always)]
    fn add(self, x: F32x4, (dot, squares): (f32, f32)) -> (f32, f32) {
        let (w, x) = (self.0.0, x.0);
        let square = float::fma(
            x[0],
            x[0],
            float::fma(x[1], x[1], float::fma(x[2], x[2], float::fma(x[3], x[3], squares))),
        );
        let dot = float::fma(
            x[0],
            w[0],
            float::fma(x[1], w[1], float::fma(x[2], w[2], float::fma(x[3], w[3], dot))),
        );
        (dot, square)
    }
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
    x: *const f32,
    gain: *const f32,
    out: *mut f32,
    columns: u32,
    eps: f32,
    ahead: Ahead,
) {
    let (id, vectors) = (thread::thread_idx_x(), columns / 4);
    let row = router.wrapping_add(thread::block_idx_x() as usize * columns as usize);
    // SAFETY: the launch has a block for each expert; the vectors are as long as the shape says.
    unsafe {
        let mut first = [(F32x4([0.0; 4]), F32x4([0.0; 4])); 4];
        unroll!(for I in 0..4 {
            first[I] = Weighted::load(row, gain, id + THREADS * I as u32, vectors);
        });
        pdl::launch_dependents();
        pdl::wait();
        let mut sums = (0.0, 0.0);
        unroll!(for I in 0..4 {
            let i = id + THREADS * I as u32;
            if i < vectors {
                sums = Weighted::new(first[I]).add(global::load(x.cast::<F32x4>().add(i as usize)), sums);
            }
        });
        let mut i = id + 4 * THREADS;
        while i < vectors {
            let weights = Weighted::new(Weighted::load(row, gain, i, vectors));
            sums = weights.add(global::load(x.cast::<F32x4>().add(i as usize)), sums);
            i += THREADS;
        }
        ahead.run();
        finish(sums, out, columns, eps);
    }
}

/// Adds up the block's parts and stores the logit.
#[inline(always)]
unsafe fn finish((mut dot, mut squares): (f32, f32), out: *mut f32, columns: u32, eps: f32) {
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let parts: Shared<F32x2> = shared::dynamic(0, THREADS / 32);
    unroll!(for I in 0..5 {
        let (d, s) = (warp::shuffle_xor(dot, 16 >> I), warp::shuffle_xor(squares, 16 >> I));
        (dot, squares) = (dot + d, squares + s);
    });
    if lane == 0 {
        parts.store(warp, F32x2([dot, squares]));
    }
    thread::sync_threads();
    if thread::thread_idx_x() == 0 {
        let (a, b, c, d) = (parts.load(0).0, parts.load(1).0, parts.load(2).0, parts.load(3).0);
        let (dot, squares) = ((a[0] + b[0]) + (c[0] + d[0]), (a[1] + b[1]) + (c[1] + d[1]));
        let scale = float::rsqrt_approx(float::fma(squares, float::rcp(columns as f32), eps));
        // SAFETY: the output has an element for each expert.
        unsafe { global::store(out.add(thread::block_idx_x() as usize), dot * scale) };
    }
}

/// The launch for `experts` rows of `columns` columns (a multiple of 4, rows 16-byte aligned).
///
/// # Errors
/// Columns that are no multiple of 4, or no experts.
#[cfg(not(target_arch = "nvptx64"))]
#[allow(clippy::too_many_arguments)]
pub fn norm_router(
    router: DevicePtr<f32>,
    x: DevicePtr<f32>,
    gain: DevicePtr<f32>,
    out: DevicePtr<f32>,
    experts: u32,
    columns: u32,
    eps: f32,
    ahead: Ahead,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("decode_router", columns as usize, 4)?;
    let experts = crate::shape::count("decode_router", "experts", experts as usize)?;
    let config = cuda_std::launch::LaunchConfig::new(experts, THREADS)
        .shared(THREADS / 32 * 8)
        .pdl(true);
    Ok(decode_router::prepare(
        config, router, x, gain, out, columns, eps, ahead,
    ))
}
