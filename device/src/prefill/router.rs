//! Router logits of a prompt's tokens: `out[i][e] = w_e · (rms(x_i) ∘ g)`, the router in f32 as in the file.
//!
//! `factors` are those of [`split`](super::split::split) for the same rows: the second of each is 1 / rms.
//!
//! **Bytes**: router and tokens, from L2. **Shape of the work**: a warp takes 8 tokens × 4 experts, its lanes share the
//! columns: 12 loads of 16 bytes for 128 multiply-adds.
//!
//! **Launch**: [`router`].

use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 4;
/// Tokens of a warp.
const TOKENS: u32 = 8;
/// Experts of a warp.
const EXPERTS: u32 = 4;

/// Σ over four columns, onto `sum`.
#[inline(always)]
fn dot(a: [f32; 4], b: [f32; 4], sum: f32) -> f32 {
    float::fma(
        a[0],
        b[0],
        float::fma(a[1], b[1], float::fma(a[2], b[2], float::fma(a[3], b[3], sum))),
    )
}

/// The lane's parts of the sums, `[token][expert]`.
///
/// # Safety
/// All rows have `4 · vectors` columns, 16-byte aligned.
#[inline(always)]
unsafe fn parts(rows: [*const F32x4; 4], gain: *const F32x4, tokens: [*const F32x4; 8], vectors: u32) -> [[f32; 4]; 8] {
    let mut sums = [[0.0; 4]; 8];
    let mut i = warp::lane() as usize;
    while i < vectors as usize {
        // SAFETY: the caller's.
        unsafe {
            let g = global::load(gain.add(i)).0;
            let weights = |e: usize| {
                let w = global::load(rows[e].add(i)).0;
                [w[0] * g[0], w[1] * g[1], w[2] * g[2], w[3] * g[3]]
            };
            let w = [weights(0), weights(1), weights(2), weights(3)];
            unroll!(for T in 0..8 {
                let x = global::load(tokens[T].add(i)).0;
                unroll!(for E in 0..4 {
                    sums[T][E] = dot(w[E], x, sums[T][E]);
                });
            });
        }
        i += 32;
    }
    sums
}

/// Router logits of a prompt's tokens, with the norm before them folded in.
///
/// Prepare it with [`router`].
///
/// # Safety
/// The arguments of a launch that [`router`] prepared.
#[kernel(pdl)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn prefill_router(
    weights: *const f32,
    x: *const f32,
    gain: *const f32,
    factors: *const F32x2,
    out: *mut f32,
    experts: u32,
    tokens: u32,
    columns: u32,
) {
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let expert = (thread::block_idx_x() * WARPS + warp) * EXPERTS;
    let token = thread::block_idx_y() * TOKENS;
    pdl::wait();
    if expert >= experts {
        return;
    }
    // What is not there is computed as the last that is, and not stored.
    let row = |base: *const f32, i: u32, count: u32| {
        let i = if i < count { i } else { count - 1 };
        base.wrapping_add(i as usize * columns as usize).cast::<F32x4>()
    };
    let (r, t) = (
        |e: u32| row(weights, expert + e, experts),
        |i: u32| row(x, token + i, tokens),
    );
    // SAFETY: rows below the counts exist.
    unsafe {
        let sums = parts(
            [r(0), r(1), r(2), r(3)],
            gain.cast(),
            [t(0), t(1), t(2), t(3), t(4), t(5), t(6), t(7)],
            columns / 4,
        );
        let mut mine = 0.0;
        unroll!(for T in 0..8 {
            unroll!(for E in 0..4 {
                let sum = warp::sum(sums[T][E]);
                if lane == (4 * T + E) as u32 {
                    mine = sum;
                }
            });
        });
        let (token, expert) = (token + lane / EXPERTS, expert + lane % EXPERTS);
        if token < tokens && expert < experts {
            let F32x2([_, inverse]) = global::load(factors.add(token as usize));
            global::store(out.add((token * experts + expert) as usize), mine * inverse);
        }
    }
}

/// Where the router's launch reads and writes.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct RouterBuffers {
    /// The router, `[expert][column]` f32.
    pub weights: DevicePtr<f32>,
    /// The residual stream, `[token][column]` f32.
    pub x: DevicePtr<f32>,
    /// Gains of the norm.
    pub gain: DevicePtr<f32>,
    /// A pair for each token.
    pub factors: DevicePtr<F32x2>,
    /// `[token][expert]` f32.
    pub out: DevicePtr<f32>,
}

/// The launch for `tokens` tokens of `columns` columns and `experts` experts.
///
/// # Errors
/// Columns that are no multiple of 4, no experts or no tokens.
#[cfg(not(target_arch = "nvptx64"))]
pub fn router(
    b: &RouterBuffers,
    experts: u32,
    tokens: u32,
    columns: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("prefill_router", columns as usize, 4)?;
    let experts = crate::shape::count("prefill_router", "experts", experts as usize)?;
    let tokens = crate::shape::count("prefill_router", "tokens", tokens as usize)?;
    let grid = [experts.div_ceil(WARPS * EXPERTS), tokens.div_ceil(TOKENS), 1];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * WARPS, 1, 1]);
    Ok(prefill_router::prepare(
        config, b.weights, b.x, b.gain, b.factors, b.out, experts, tokens, columns,
    ))
}
