//! Heads of a prompt's tokens, normalised and rotated; keys and values go into the cache.
//!
//! `qkv` is `[token][q | k | v]`, f32. For token i at position p = position + i:
//!
//! ```text
//! queries[i][h] = rope(rms(q_h) ∘ w_q, p) · scale · log₂ e      as hi and lo, 16 bits each
//! cache[p] = stored(rope(rms(k) ∘ w_k, p)), stored(v)
//! ```
//!
//! (no norm where its weights are null), the cache laid out and its values stored as [`kv`] says; hi and lo of the queries
//! alternate by pairs of dims ([`query_at`]), in the type that the format's products are made in.
//!
//! **Bytes**: `4 · (q + k + v)` read, `4 · q` and k and v in the format written for each token. **Shape of the work**: a warp a head.
//!
//! **Launch**: [`append`].

use crate::decode::attention::AttentionShape;
use crate::decode::attention::lane::{Pairs, Values};
use crate::decode::attention::tile::query_at;
#[cfg(not(target_arch = "nvptx64"))]
use crate::decode::kv::KvFormat;
use crate::decode::kv::{self, Bf16, F16, KvType, Q8_0};
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
    keys: *mut u8,
    values: *mut u8,
    queries: *mut u16,
    shape: AttentionShape,
    chunk: Chunk,
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
unsafe fn head<T: KvType, const HD: u32>(a: &Arguments) {
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
            T::FORMAT.head_at(page, a.shape.page_bytes, head - first, HD)
        };
        let slot = position % kv::PAGE_TOKENS;
        if head >= heads + kv_heads {
            let to = a.values.add(place(heads + kv_heads));
            let mut dim = lane;
            while dim < HD {
                let stored = T::encode(global::load(x.add(dim as usize)));
                T::write(to, T::FORMAT.value(slot, dim, HD), dim, stored);
                dim += 32;
            }
            return;
        }
        let pairs = Pairs::<HD>::at(position, &a.shape, a.frequencies, lane);
        let v = pairs.load(x);
        if head < heads {
            let factor = norm_factor(&pairs, &v, a.q_norm, a.shape.eps) * a.shape.scale * core::f32::consts::LOG2_E;
            let v = pairs.turn(&v, &pairs.weights(a.q_norm), factor);
            let row = token as usize * heads as usize + head as usize;
            let to = a.queries.add(2 * row * HD as usize);
            pairs.each(&v, |dim, v| {
                let ([high, low], at) = (T::split(v), query_at(dim) as usize);
                global::store(to.add(at), high);
                global::store(to.add(at + 2), low);
            });
        } else {
            let factor = norm_factor(&pairs, &v, a.k_norm, a.shape.eps);
            let v = pairs.turn(&v, &pairs.weights(a.k_norm), factor);
            let to = a.keys.add(place(heads));
            let scratch = shared::dynamic(warp * HD * 4, HD);
            pairs.each_stored::<T>(&v, scratch, |_, dim, stored| {
                T::write(to, T::FORMAT.key(slot, dim, HD), dim, stored);
            });
        }
    }
}

macro_rules! kernels {
    ($($name:ident = $format:ident, $dims:literal, $doc:literal;)*) => {$(
        #[doc = $doc]
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
            keys: *mut u8,
            values: *mut u8,
            queries: *mut u16,
            shape: AttentionShape,
            chunk: Chunk,
        ) {
            pdl::wait();
            let a = Arguments { qkv, q_norm, k_norm, frequencies, table, keys, values, queries, shape, chunk };
            // SAFETY: passed on.
            unsafe { head::<$format, $dims>(&a) }
        }
    )*};
}

kernels! {
    prefill_append_64_f16 = F16, 64, "Heads of 64 dims of a prompt: norm, rotation, cache in f16.";
    prefill_append_128_f16 = F16, 128, "Heads of 128 dims of a prompt: norm, rotation, cache in f16.";
    prefill_append_256_f16 = F16, 256, "Heads of 256 dims of a prompt: norm, rotation, cache in f16.";
    prefill_append_64_bf16 = Bf16, 64, "Heads of 64 dims of a prompt: norm, rotation, cache in bf16.";
    prefill_append_128_bf16 = Bf16, 128, "Heads of 128 dims of a prompt: norm, rotation, cache in bf16.";
    prefill_append_256_bf16 = Bf16, 256, "Heads of 256 dims of a prompt: norm, rotation, cache in bf16.";
    prefill_append_64_q8_0 = Q8_0, 64, "Heads of 64 dims of a prompt: norm, rotation, cache in q8_0.";
    prefill_append_128_q8_0 = Q8_0, 128, "Heads of 128 dims of a prompt: norm, rotation, cache in q8_0.";
    prefill_append_256_q8_0 = Q8_0, 256, "Heads of 256 dims of a prompt: norm, rotation, cache in q8_0.";
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
    /// The layer's pool of keys.
    pub keys: DevicePtr<u8>,
    /// The layer's pool of values.
    pub values: DevicePtr<u8>,
    /// The queries, `[token][head][dims / 2][hi, lo][2]`, 16 bits each.
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
    if ![64, 128, 256].contains(&head_dim) {
        return refuse(format!("heads of {head_dim} dims; it takes 64, 128 or 256"));
    }
    if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return refuse(format!("{heads} query heads on {kv_heads} key heads"));
    }
    if rotated > head_dim || !rotated.is_multiple_of(2) {
        return refuse(format!("{rotated} of {head_dim} dims rotate; it takes an even part"));
    }
    if shape.softcap != 0.0 {
        return refuse(format!("a score cap of {}; it takes none", shape.softcap));
    }
    if chunk.count == 0 {
        return refuse("no tokens".to_owned());
    }
    Ok(())
}

/// The launch for a chunk of heads of `head_dim` dims, with a cache of `format`.
///
/// # Errors
/// Heads of other than 64, 128 or 256 dims, query heads that key heads do not divide, a score cap, no tokens.
#[cfg(not(target_arch = "nvptx64"))]
pub fn append(
    b: &HeadBuffers,
    shape: AttentionShape,
    (format, head_dim): (KvFormat, u32),
    chunk: Chunk,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    check("prefill_append", &shape, head_dim, chunk)?;
    let heads = shape.heads + 2 * shape.kv_heads;
    let config = cuda_std::launch::LaunchConfig::shaped([chunk.count, heads.div_ceil(WARPS), 1], [32 * WARPS, 1, 1]);
    let prepare = match (format, head_dim) {
        (KvFormat::F16, 64) => prefill_append_64_f16::prepare,
        (KvFormat::F16, 128) => prefill_append_128_f16::prepare,
        (KvFormat::F16, _) => prefill_append_256_f16::prepare,
        (KvFormat::Bf16, 64) => prefill_append_64_bf16::prepare,
        (KvFormat::Bf16, 128) => prefill_append_128_bf16::prepare,
        (KvFormat::Bf16, _) => prefill_append_256_bf16::prepare,
        (KvFormat::Q8_0, 64) => prefill_append_64_q8_0::prepare,
        (KvFormat::Q8_0, 128) => prefill_append_128_q8_0::prepare,
        (KvFormat::Q8_0, _) => prefill_append_256_q8_0::prepare,
    };
    // Where 32 dims share a scale they meet in shared memory.
    let shared = if format.scaled() { 4 * WARPS * head_dim } else { 0 };
    Ok(prepare(
        config.shared(shared),
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
