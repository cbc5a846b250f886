//! The general attention kernel: any even head dim up to 512, any number of query heads, window and score cap, all in
//! f32 over the same paged cache, of any format. Slow, and short enough to be checked by reading; the fast kernels are compared
//! with it, and shapes that they refuse run here.
//!
//! **Shape of the work**: a block of four warps for every query head. The block normalises and rotates its query and the
//! new key itself; the first query head of a key head stores the new key and value. A warp takes every fourth token:
//! lanes share its dims, so the score is one sum over the warp, and the running output stays in registers.
//!
//! **Launch**: [`general`](fn@general).

use super::AttentionShape;
#[cfg(not(target_arch = "nvptx64"))]
use super::launch::AttentionBuffers;
#[cfg(not(target_arch = "nvptx64"))]
use crate::decode::kv::KvFormat;
use crate::decode::kv::{self, Bf16, F16, KvType, Q8_0};
use crate::decode::{rope, state::StepState};
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 4;
/// Dims of a head at most.
const MAX_DIM: u32 = 512;

/// Shared memory: query, new key, new value, and what the warps found.
struct Room {
    query: Shared<f32>,
    key: Shared<f32>,
    value: Shared<f32>,
    parts: Shared<F32x2>,
    outputs: Shared<f32>,
}

impl Room {
    const fn bytes(dim: u32) -> u32 {
        (3 + WARPS) * dim * 4 + WARPS * 8
    }

    #[inline(always)]
    fn new(dim: u32) -> Self {
        Self {
            query: shared::dynamic(0, dim),
            key: shared::dynamic(4 * dim, dim),
            value: shared::dynamic(8 * dim, dim),
            outputs: shared::dynamic(12 * dim, WARPS * dim),
            parts: shared::dynamic((12 + 4 * WARPS) * dim, WARPS),
        }
    }
}

/// What a block needs to know.
struct Block {
    shape: AttentionShape,
    dim: u32,
    position: u32,
    head: u32,
    kv_head: u32,
    lane: u32,
    warp: u32,
}

impl Block {
    /// Normalises and rotates the head at `x` into shared memory, times `scale`; one warp.
    ///
    /// # Safety
    /// `x` and `weight` (or null) have `dim` floats, `frequencies` an entry for each rotating pair.
    #[inline(always)]
    unsafe fn turn(&self, x: *const f32, weight: *const f32, frequencies: *const F32x2, scale: f32, out: Shared<f32>) {
        // SAFETY: the caller's; dims of a pair are below `dim`.
        unsafe {
            let mut squares = 0.0;
            let mut i = self.lane;
            while i < self.dim {
                let v = global::load(x.add(i as usize));
                squares = float::fma(v, v, squares);
                i += 32;
            }
            let rms = float::rsqrt_approx(float::div(warp::sum(squares), self.dim as f32) + self.shape.eps);
            let value = |dim: u32| {
                let v = global::load(x.add(dim as usize));
                if weight.is_null() {
                    v
                } else {
                    v * (rms * global::load_nc(weight.add(dim as usize)))
                }
            };
            let mut pair = self.lane;
            while pair < self.dim / 2 {
                let (a, b) = rope::dims_of_pair(pair, self.shape.rotated, self.shape.pairing);
                let (sin, cos) = self.rotation(frequencies, pair);
                let (u, v) = (value(a), value(b));
                out.store(a, scale * float::fma(u, cos, -(v * sin)));
                out.store(b, scale * float::fma(u, sin, v * cos));
                pair += 32;
            }
        }
    }

    #[inline(always)]
    unsafe fn rotation(&self, frequencies: *const F32x2, pair: u32) -> (f32, f32) {
        if pair >= self.shape.rotated / 2 {
            return (0.0, 1.0);
        }
        // SAFETY: the pair rotates.
        let frequency = unsafe { global::load_nc(frequencies.add(pair as usize)) };
        let (sin, cos) = crate::rope::rotation(self.position, frequency);
        (sin * self.shape.mscale, cos * self.shape.mscale)
    }

    /// Byte of a pool at which the head of token `token` begins, and the token's slot.
    #[inline(always)]
    unsafe fn head<T: KvType>(&self, table: *const u32, token: u32) -> (usize, u32) {
        // SAFETY: the table has the token's page.
        let page = unsafe { global::load_nc(table.add((token / kv::PAGE_TOKENS) as usize)) };
        (
            T::FORMAT.head_at(page, self.shape.page_bytes, self.kv_head, self.dim),
            token % kv::PAGE_TOKENS,
        )
    }

    #[inline(always)]
    fn capped(&self, score: f32) -> f32 {
        let cap = self.shape.softcap;
        if cap == 0.0 {
            return score;
        }
        let e = float::exp(-2.0 * float::abs(float::div(score, cap)));
        let tanh = cap * float::div(1.0 - e, 1.0 + e);
        if score < 0.0 { -tanh } else { tanh }
    }

    /// Calls `f(register, dim)` for each of the lane's dims.
    #[inline(always)]
    fn dims(&self, mut f: impl FnMut(usize, u32)) {
        unroll!(for I in 0..16 {
            let dim = self.lane + 32 * I as u32;
            if dim < self.dim {
                f(I, dim);
            }
        });
    }
}

/// Where the kernel reads and writes.
struct Arguments {
    qkv: *const f32,
    q_norm: *const f32,
    k_norm: *const f32,
    frequencies: *const F32x2,
    state: *const StepState,
    table: *const u32,
    keys: *mut u8,
    values: *mut u8,
    out: *mut f32,
    shape: AttentionShape,
    dim: u32,
}

/// The kernel's body.
///
/// # Safety
/// The arguments of a launch that [`general`](fn@general) prepared.
#[inline(always)]
unsafe fn attend<T: KvType>(a: &Arguments) {
    let (shape, dim) = (a.shape, a.dim);
    // SAFETY: the launch's contract.
    unsafe {
        pdl::wait();
        let head = thread::block_idx_x();
        let kv_head = head / (shape.heads / shape.kv_heads.max(1)).max(1);
        let block = Block {
            shape,
            dim,
            position: global::load(&raw const (*a.state).position),
            head,
            kv_head,
            lane: warp::lane(),
            warp: thread::thread_idx_x() / 32,
        };
        let room = Room::new(dim);
        let row = |head: u32| a.qkv.wrapping_add((head * dim) as usize);
        if block.warp == 0 {
            block.turn(row(head), a.q_norm, a.frequencies, shape.scale, room.query);
        } else if block.warp == 1 {
            block.turn(row(shape.heads + kv_head), a.k_norm, a.frequencies, 1.0, room.key);
        }
        thread::sync_threads();
        append::<T>(a, &block, &room, row(shape.heads + shape.kv_heads + kv_head));
        thread::sync_threads();
        tokens::<T>(a, &block, &room);
        thread::sync_threads();
        combine(&block, &room, a.out);
    }
}

macro_rules! kernels {
    ($($name:ident = $format:ident, $doc:literal;)*) => {$(
        #[doc = $doc]
        ///
        /// Prepare it with [`general`](fn@general); the arguments are those of the fast kernels.
        ///
        /// # Safety
        /// The arguments of a launch that [`general`](fn@general) prepared.
        #[kernel(pdl)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            qkv: *const f32,
            q_norm: *const f32,
            k_norm: *const f32,
            frequencies: *const F32x2,
            state: *const StepState,
            table: *const u32,
            keys: *mut u8,
            values: *mut u8,
            out: *mut f32,
            shape: AttentionShape,
            dim: u32,
        ) {
            let a = Arguments { qkv, q_norm, k_norm, frequencies, state, table, keys, values, out, shape, dim };
            // SAFETY: passed on.
            unsafe { attend::<$format>(&a) }
        }
    )*};
}

kernels! {
    attention_general_f16 = F16, "Attention over f16 for any head dim up to 512, with window and score cap.";
    attention_general_bf16 = Bf16, "Attention over bf16 for any head dim up to 512, with window and score cap.";
    attention_general_q8_0 = Q8_0, "Attention over q8_0 for any head dim up to 512, with window and score cap.";
}

/// Rounds the new key and value as the cache does, and stores them from the first query head of the key head.
#[inline(always)]
unsafe fn append<T: KvType>(a: &Arguments, block: &Block, room: &Room, value: *const f32) {
    let first = block.head == block.kv_head * (block.shape.heads / block.shape.kv_heads.max(1));
    let mut dim = thread::thread_idx_x();
    // SAFETY: the new token's page is in the table; one block stores it, a thread each dim.
    unsafe {
        let (head, slot) = block.head::<T>(a.table, block.position);
        while dim < block.dim {
            let key = T::encode(room.key.load(dim));
            let value = T::encode(global::load(value.add(dim as usize)));
            room.key.store(dim, key.value);
            room.value.store(dim, value.value);
            if first {
                T::write(a.keys.add(head), T::FORMAT.key(slot, dim, block.dim), dim, key);
                T::write(a.values.add(head), T::FORMAT.value(slot, dim, block.dim), dim, value);
            }
            dim += thread::block_dim_x();
        }
    }
}

/// The warp's tokens, one after the other; leaves its part of the output in shared memory.
#[inline(always)]
unsafe fn tokens<T: KvType>(a: &Arguments, block: &Block, room: &Room) {
    let window = block.shape.window;
    let first = if window != 0 && block.position >= window {
        block.position + 1 - window
    } else {
        0
    };
    let (mut max, mut sum, mut out) = (f32::NEG_INFINITY, 0.0, [0.0; 16]);
    let mut token = first + block.warp;
    while token <= block.position {
        // SAFETY: the token's page is in the table.
        let (head, slot) = unsafe { block.head::<T>(a.table, token) };
        let new = token == block.position;
        let mut dot = 0.0;
        block.dims(|_, dim| {
            let k = if new {
                room.key.load(dim)
            } else {
                // SAFETY: the dim is in the head.
                unsafe { T::read(a.keys.add(head), T::FORMAT.key(slot, dim, block.dim)) }
            };
            dot = float::fma(room.query.load(dim), k, dot);
        });
        let score = block.capped(warp::sum(dot));
        let next = float::max(max, score);
        let (before, weight) = (float::exp(max - next), float::exp(score - next));
        sum = float::fma(sum, before, weight);
        block.dims(|i, dim| {
            let v = if new {
                room.value.load(dim)
            } else {
                // SAFETY: the dim is in the head.
                unsafe { T::read(a.values.add(head), T::FORMAT.value(slot, dim, block.dim)) }
            };
            out[i] = float::fma(weight, v, out[i] * before);
        });
        max = next;
        token += WARPS;
    }
    block.dims(|i, dim| room.outputs.store(block.warp * block.dim + dim, out[i]));
    if block.lane == 0 {
        room.parts.store(block.warp, F32x2([max, sum]));
    }
}

/// Adds up the warps in their order.
#[inline(always)]
unsafe fn combine(block: &Block, room: &Room, out: *mut f32) {
    let mut max = f32::NEG_INFINITY;
    unroll!(for W in 0..4 {
        max = float::max(max, room.parts.load(W as u32).0[0]);
    });
    let mut dim = thread::thread_idx_x();
    while dim < block.dim {
        let (mut sum, mut total) = (0.0, 0.0);
        unroll!(for W in 0..4 {
            let F32x2([m, l]) = room.parts.load(W as u32);
            let factor = float::exp(m - max);
            sum = float::fma(factor, room.outputs.load(W as u32 * block.dim + dim), sum);
            total = float::fma(factor, l, total);
        });
        // SAFETY: the output has the head.
        unsafe { global::store(out.add((block.head * block.dim + dim) as usize), float::div(sum, total)) };
        dim += thread::block_dim_x();
    }
}

/// The launch for heads of `dim` dims over a cache of `format`; workspace and counters of `b` are not used.
///
/// # Errors
/// Heads of an odd number of dims or of more than 512, query heads that key heads do not divide, or dims that do not
/// make whole blocks of the format.
#[cfg(not(target_arch = "nvptx64"))]
pub fn general(
    shape: AttentionShape,
    format: KvFormat,
    dim: u32,
    b: AttentionBuffers,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let refuse = |rule| Err(crate::shape::ShapeError::new("attention_general", rule));
    if dim == 0 || dim > MAX_DIM || !dim.is_multiple_of(2) || shape.rotated > dim || !shape.rotated.is_multiple_of(2) {
        return refuse(format!(
            "{} of {dim} dims rotate; it takes even numbers up to {MAX_DIM}",
            shape.rotated
        ));
    }
    if shape.kv_heads == 0 || shape.heads == 0 || !shape.heads.is_multiple_of(shape.kv_heads) {
        return refuse(format!("{} query heads on {} key heads", shape.heads, shape.kv_heads));
    }
    if format.scaled() && !dim.is_multiple_of(kv::BLOCK) {
        return refuse(format!(
            "heads of {dim} dims in {}; it takes multiples of {}",
            format.name(),
            kv::BLOCK
        ));
    }
    let prepare = match format {
        KvFormat::F16 => attention_general_f16::prepare,
        KvFormat::Bf16 => attention_general_bf16::prepare,
        KvFormat::Q8_0 => attention_general_q8_0::prepare,
    };
    let config = cuda_std::launch::LaunchConfig::new(shape.heads, 32 * WARPS)
        .shared(Room::bytes(dim))
        .pdl(true);
    Ok(prepare(
        config,
        b.qkv,
        b.q_norm,
        b.k_norm,
        b.frequencies,
        b.state,
        b.table,
        b.keys,
        b.values,
        b.out,
        shape,
        dim,
    ))
}
