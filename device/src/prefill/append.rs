//! Heads of a prompt's tokens, normalised and rotated; keys and values go into the cache.
//!
//! `qkv` is `[token][q | k | v]`, f32. For token i at position p = position + i:
//!
//! ```text
//! queries[i][h] = rope(rms(q_h) ∘ w_q, p) · scale · log₂ e      as hi and lo, f16 each
//! cache[p] = f16(rope(rms(k) ∘ w_k, p)), f16(v)
//! ```
//!
//! (no norm where its weights are null), the cache laid out as [`kv`] says, all hi of the queries before all lo.
//!
//! **Bytes**: `4 · (q + k + v)` read, `4 · q + 2 · (k + v)` written for each token. **Shape of the work**: a warp a head.
//!
//! **Launch**: [`append`].

use crate::decode::attention::AttentionShape;
use crate::decode::attention::lane::{Pairs, Values};
use crate::decode::kv;
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 4;

/// Which of its tokens a chunk is at.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Chunk {
    /// Tokens of the chunk.
    pub count: u32,
    /// Position of its first token: how many are in the cache.
    pub position: u32,
}

/// Where the launch reads and writes.
struct Arguments {
    qkv: *const f32,
    q_norm: *const f32,
    k_norm: *const f32,
    frequencies: *const F32x2,
    table: *const u32,
    keys: *mut u16,
    values: *mut u16,
    queries: *mut u16,
    shape: AttentionShape,
    chunk: Chunk,
}

/// The bits of `x` as f16, and its value.
#[inline(always)]
fn rounded(x: f32) -> (u16, f32) {
    let half = half2::f32_to_f16(x);
    (half.to_bits(), half2::f16_to_f32(half))
}

/// The norm of a head, as a factor.
#[inline(always)]
fn norm_factor<const HD: u32>(pairs: &Pairs<HD>, x: &Values, weight: *const f32, eps: f32) -> f32 {
    let squares = warp::sum(pairs.squares(x));
    if weight.is_null() {
        1.0
    } else {
        float::rsqrt_approx(float::fma(squares, 1.0 / HD as f32, eps))
    }
}

/// One head of one token.
///
/// # Safety
/// The arguments of a launch that [`append`] prepared.
#[inline(always)]
unsafe fn head<const HD: u32>(a: &Arguments) {
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let (token, head) = (thread::block_idx_x(), thread::block_idx_y() * WARPS + warp);
    let (heads, kv_heads) = (a.shape.heads, a.shape.kv_heads);
    let all = heads + 2 * kv_heads;
    if head >= all {
        return;
    }
    let position = a.chunk.position + token;
    let x = a
        .qkv
        .wrapping_add((token as usize * all as usize + head as usize) * HD as usize);
    // SAFETY: the launch has a warp for each head of each token; the positions' pages are in the table.
    unsafe {
        let place = |first: u32| {
            let page = global::load(a.table.add((position / kv::PAGE_TOKENS) as usize));
            kv::head_base(page, a.shape.page_stride, head - first, HD)
        };
        let slot = position % kv::PAGE_TOKENS;
        if head >= heads + kv_heads {
            let to = a.values.add(place(heads + kv_heads));
            let mut dim = lane;
            while dim < HD {
                let (bits, _) = rounded(global::load(x.add(dim as usize)));
                global::store(to.add(kv::value_at(slot, dim)), bits);
                dim += 32;
            }
            return;
        }
        let pairs = Pairs::<HD>::at(position, &a.shape, a.frequencies, lane);
        let v = pairs.load(x);
        if head < heads {
            let factor = norm_factor(&pairs, &v, a.q_norm, a.shape.eps) * a.shape.scale * core::f32::consts::LOG2_E;
            let v = pairs.turn(&v, &pairs.weights(a.q_norm), factor);
            let to = a
                .queries
                .add((token as usize * heads as usize + head as usize) * HD as usize);
            let low = a.chunk.count as usize * (heads * HD) as usize;
            pairs.each(&v, |dim, v| {
                let (bits, value) = rounded(v);
                global::store(to.add(dim as usize), bits);
                global::store(to.add(low + dim as usize), rounded(v - value).0);
            });
        } else {
            let factor = norm_factor(&pairs, &v, a.k_norm, a.shape.eps);
            let v = pairs.turn(&v, &pairs.weights(a.k_norm), factor);
            let to = a.keys.add(place(heads) + kv::key_at(slot, 0, HD));
            pairs.each(&v, |dim, v| global::store(to.add(dim as usize), rounded(v).0));
        }
    }
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $dims:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// Prepare it with [`append`]; see the module for formulas and layouts.
        ///
        /// # Safety
        /// The arguments of a launch that [`append`] prepared.
        #[kernel(pdl)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            qkv: *const f32,
            q_norm: *const f32,
            k_norm: *const f32,
            frequencies: *const F32x2,
            table: *const u32,
            keys: *mut u16,
            values: *mut u16,
            queries: *mut u16,
            shape: AttentionShape,
            chunk: Chunk,
        ) {
            pdl::wait();
            let a = Arguments { qkv, q_norm, k_norm, frequencies, table, keys, values, queries, shape, chunk };
            // SAFETY: passed on.
            unsafe { head::<$dims>(&a) }
        }
    )*};
}

kernels! {
    /// Heads of 64 dims of a prompt: norm, rotation, cache.
    prefill_append_64 = 64;
    /// Heads of 128 dims of a prompt: norm, rotation, cache.
    prefill_append_128 = 128;
}

/// Where a layer's heads come from and go to.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct HeadBuffers {
    /// `[token][q | k | v]`, f32.
    pub qkv: DevicePtr<f32>,
    /// Norm weights of a query head, or null.
    pub q_norm: DevicePtr<f32>,
    /// Norm weights of a key head, or null.
    pub k_norm: DevicePtr<f32>,
    /// The rotation table.
    pub frequencies: DevicePtr<F32x2>,
    /// Page of every 64 positions.
    pub table: DevicePtr<u32>,
    /// The layer's pool of keys, f16.
    pub keys: DevicePtr<u16>,
    /// The layer's pool of values, f16.
    pub values: DevicePtr<u16>,
    /// The queries, hi of all tokens and then lo, `[token][head][dim]` f16 each.
    pub queries: DevicePtr<u16>,
    /// The attention output, `[token][head][dim]` f32.
    pub out: DevicePtr<f32>,
}

/// Refuses what the prompt's attention kernels do not take.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn check(
    kernel: &'static str,
    shape: &AttentionShape,
    head_dim: u32,
    chunk: Chunk,
) -> Result<(), crate::shape::ShapeError> {
    let refuse = |rule| Err(crate::shape::ShapeError::new(kernel, rule));
    let AttentionShape {
        heads,
        kv_heads,
        rotated,
        ..
    } = *shape;
    if head_dim != 64 && head_dim != 128 {
        return refuse(format!("heads of {head_dim} dims; it takes 64 or 128"));
    }
    if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return refuse(format!("{heads} query heads on {kv_heads} key heads"));
    }
    if rotated > head_dim || !rotated.is_multiple_of(2) {
        return refuse(format!("{rotated} of {head_dim} dims rotate; it takes an even part"));
    }
    if shape.window != 0 || shape.softcap != 0.0 {
        return refuse(format!(
            "a window of {} or a score cap of {}; it takes neither",
            shape.window, shape.softcap
        ));
    }
    if chunk.count == 0 {
        return refuse("no tokens".to_owned());
    }
    Ok(())
}

/// The launch for a chunk of heads of `head_dim` dims.
///
/// # Errors
/// Heads of other than 64 or 128 dims, query heads that key heads do not divide, a window or a score cap, no tokens.
#[cfg(not(target_arch = "nvptx64"))]
pub fn append(
    b: &HeadBuffers,
    shape: AttentionShape,
    head_dim: u32,
    chunk: Chunk,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    check("prefill_append", &shape, head_dim, chunk)?;
    let heads = shape.heads + 2 * shape.kv_heads;
    let config = cuda_std::launch::LaunchConfig::shaped([chunk.count, heads.div_ceil(WARPS), 1], [32 * WARPS, 1, 1]);
    let prepare = if head_dim == 64 {
        prefill_append_64::prepare
    } else {
        prefill_append_128::prepare
    };
    Ok(prepare(
        config,
        b.qkv,
        b.q_norm,
        b.k_norm,
        b.frequencies,
        b.table,
        b.keys,
        b.values,
        b.queries,
        shape,
        chunk,
    ))
}
