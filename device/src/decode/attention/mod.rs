//! Attention of one new token over a paged KV cache.
//!
//! For every query head h, with key head k = h / (heads / kv heads) and position p:
//!
//! ```text
//! q' = rope(rms(q_h) ∘ w_q, p)    k' = f16(rope(rms(k_k) ∘ w_k, p))    v' = f16(v_k)
//! cache[p] = k', v'
//! out_h = Σ_j softmax_j(scale · q' · K_j) V_j          j over the window's tokens and the new one
//! ```
//!
//! (no norm where its weights are null). `qkv` is `q | k | v`, each `[head][dim]` f32; `out` is `[head][dim]` f32. The
//! cache lies as [`kv`] says; rotation is a table ([`rope`](crate::rope)).
//!
//! **Bytes**: `2 · 2 · kv heads · head dim` for each token seen; the rest is small.
//!
//! **Shape of the work**: split-KV flash decoding. A block takes one key head and a share of the old tokens
//! ([`Share`], computed here from the position, so that one captured launch serves every depth; splits without work
//! leave at once); its warps take chunks of 32 tokens, on tensor cores ([`tile`]). All query heads of a key head share
//! each load. The last active split also takes the new token, whose key and value it has in registers: nothing reads
//! back what was just written. Warps meet in shared memory, splits in a workspace, where the last block of a key head
//! to arrive adds them up in the order of the splits: the result does not depend on who was last.
//!
//! **What is loaded before the wait**: position, page table, rotation, norm weights, and (up to 128 dims) the
//! first chunk of keys. Old
//! tokens were written at least one step ago, and between then and now lies a launch that waited before it let its
//! successor start (`topk_gateup`, and the embedding at the start of a step).

mod combine;
pub mod general;
pub(crate) mod lane;
mod launch;
#[cfg(not(target_arch = "nvptx64"))]
mod reference;
mod share;
pub(crate) mod softmax;
pub(crate) mod tile;

#[cfg(not(target_arch = "nvptx64"))]
pub use launch::{AttentionBuffers, AttentionPlan, attention};
#[cfg(not(target_arch = "nvptx64"))]
pub use reference::{AttentionInputs, AttentionOutputs};
pub use share::{CHUNK, Share};

use super::kv;
use super::state::StepState;
use combine::{Partial, Room, Workspace};
use cuda_std::prelude::*;
use lane::{Pairs, Values};
use softmax::Running;
use tile::{Corner, EMPTY, Output, Queries};

/// Shape and constants of a layer's attention.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Dims of a head that rotate; even.
    pub rotated: u32,
    /// How rotating dims are paired: a [`Pairing`](super::rope::Pairing).
    pub pairing: u32,
    /// Tokens that a query sees, itself among them; 0: all.
    pub window: u32,
    /// Elements from one page of the layer's pool to the next.
    pub page_stride: u32,
    /// Chunks of 32 tokens that a split takes at least, before another split gets any.
    pub least_chunks: u32,
    /// RMSNorm's epsilon for query and key heads.
    pub eps: f32,
    /// Factor of the scores, usually 1 / √head dim.
    pub scale: f32,
    /// Factor of rotated sines and cosines (YaRN); 1 without.
    pub mscale: f32,
    /// Scores are capped as `c · tanh(score / c)`; 0: not at all. Only the general kernel takes another value.
    pub softcap: f32,
}

/// Where a step of attention reads and writes.
struct Arguments {
    qkv: *const f32,
    q_norm: *const f32,
    k_norm: *const f32,
    frequencies: *const F32x2,
    state: *const StepState,
    table: *const u32,
    keys: *mut u16,
    values: *mut u16,
    workspace: Workspace,
    out: *mut f32,
    shape: AttentionShape,
}

/// What a block knows before it waits.
struct Block<const HD: u32> {
    position: u32,
    split: u32,
    kv_head: u32,
    group: u32,
    share: Share,
    lane: u32,
    warp: u32,
    warps: u32,
}

impl<const HD: u32> Block<HD> {
    /// # Safety
    /// The arguments of the launch.
    #[inline(always)]
    unsafe fn new(a: &Arguments) -> Self {
        // SAFETY: the state is not written while a step runs, except by its last launch.
        let position = unsafe { global::load(&raw const (*a.state).position) };
        let (split, splits) = (thread::block_idx_x(), thread::grid_dim_x());
        Self {
            position,
            split,
            kv_head: thread::block_idx_y(),
            group: a.shape.heads / a.shape.kv_heads.max(1),
            share: Share::of(position, a.shape.window, splits, a.shape.least_chunks, split),
            lane: warp::lane(),
            warp: thread::thread_idx_x() / 32,
            warps: thread::block_dim_x() / 32,
        }
    }

    /// This block takes the new token.
    #[inline(always)]
    fn owner(&self) -> bool {
        self.split == self.share.active - 1
    }

    /// The key or value head of this block in the page of token `token`.
    ///
    /// # Safety
    /// The table has the token's page.
    #[inline(always)]
    unsafe fn head(&self, a: &Arguments, pool: *mut u16, token: u32) -> *mut u16 {
        // SAFETY: the caller's.
        unsafe {
            let page = global::load_nc(a.table.add((token / kv::PAGE_TOKENS) as usize));
            pool.add(kv::head_base(page, a.shape.page_stride, self.kv_head, HD))
        }
    }
}

/// The kernel's body. `WIDE`: more than 8 query heads a key head.
///
/// # Safety
/// The arguments of a launch that [`attention`] prepared.
#[inline(always)]
unsafe fn attend<const HD: u32, const WIDE: bool>(a: Arguments) {
    // SAFETY: all accesses are those of a prepared launch; each is explained where it is not obvious.
    unsafe {
        let block = Block::<HD>::new(&a);
        if block.split >= block.share.active {
            pdl::launch_dependents();
            pdl::wait();
            return;
        }
        let room = Room::<HD, WIDE>::new(block.warps);
        let pairs = Pairs::<HD>::at(block.position, &a.shape, a.frequencies, block.lane);
        let (q_weight, k_weight) = (pairs.weights(a.q_norm), pairs.weights(a.k_norm));
        let mut warp = Warp::<HD, WIDE>::start(&a, &block);
        room.clear_spare_rows(block.group);
        pdl::launch_dependents();
        pdl::wait();

        let prepare = Prepare {
            a: &a,
            block: &block,
            pairs: &pairs,
            room,
            q_weight,
            k_weight,
        };
        prepare.run();
        thread::sync_threads();
        warp.run(&a, &block, room.queries);
        warp.publish(&block, room);
        thread::sync_threads();
        combine::warps(&a, &block, room);
        if block.share.active > 1 {
            combine::splits(&a, &block, room);
        }
    }
}

/// The heads of a block, normalised and rotated after the wait.
struct Prepare<'a, const HD: u32, const WIDE: bool> {
    a: &'a Arguments,
    block: &'a Block<HD>,
    pairs: &'a Pairs<HD>,
    room: Room<HD, WIDE>,
    q_weight: Values,
    k_weight: Values,
}

impl<const HD: u32, const WIDE: bool> Prepare<'_, HD, WIDE> {
    /// Puts the block's query heads into shared memory, a warp at a time two of them; the owner of the new token also
    /// appends its key and value and leaves their score and value there.
    ///
    /// # Safety
    /// As [`attend`], after the wait.
    #[inline(always)]
    unsafe fn run(&self) {
        let (block, group) = (self.block, self.block.group);
        let key = if block.owner() {
            // SAFETY: the caller's.
            unsafe { self.append() }
        } else {
            [(0.0, 0.0); 4]
        };
        let mut head = 2 * block.warp;
        while head < group {
            let other = if head + 1 < group { head + 1 } else { head };
            // SAFETY: both are heads of the group.
            unsafe { self.two_heads(head, other, &key) };
            head += 2 * block.warps;
        }
    }

    /// Heads `h` and `i` (the same, where the group is odd) of the group.
    #[inline(always)]
    unsafe fn two_heads(&self, h: u32, i: u32, key: &Values) {
        let (a, block, pairs) = (self.a, self.block, self.pairs);
        let at = |head: u32| a.qkv.wrapping_add(((block.kv_head * block.group + head) * HD) as usize);
        // SAFETY: heads of the group lie in `qkv`.
        let (x, y) = unsafe { (pairs.load(at(h)), pairs.load(at(i))) };
        let (sx, sy) = sum_two(pairs.squares(&x), pairs.squares(&y));
        // Scores are kept in units of log₂ e, for ex2.
        let scale = a.shape.scale * core::f32::consts::LOG2_E;
        let x = pairs.turn(&x, &self.q_weight, scale * self.norm_scale(a.q_norm, sx));
        let y = pairs.turn(&y, &self.q_weight, scale * self.norm_scale(a.q_norm, sy));
        self.room.store_query(pairs, h, &x);
        self.room.store_query(pairs, i, &y);
        if block.owner() {
            let (sx, sy) = sum_two(dot(&x, key), dot(&y, key));
            if block.lane == 0 {
                self.room.new_scores.store(h, sx);
                self.room.new_scores.store(i, sy);
            }
        }
    }

    #[inline(always)]
    fn norm_scale(&self, weight: *const f32, squares: f32) -> f32 {
        if weight.is_null() {
            1.0
        } else {
            float::rsqrt_approx(float::fma(squares, 1.0 / HD as f32, self.a.shape.eps))
        }
    }

    /// Appends the new token and returns the lane's pairs of its key, as stored.
    #[inline(always)]
    unsafe fn append(&self) -> Values {
        let (a, block, pairs) = (self.a, self.block, self.pairs);
        let slot = block.position % kv::PAGE_TOKENS;
        let row = |head: u32| a.qkv.wrapping_add((head * HD) as usize);
        // SAFETY: the new token's page is in the table, its head is this block's alone, and `qkv` has its row.
        unsafe {
            let x = pairs.load(row(a.shape.heads + block.kv_head));
            let (squares, _) = sum_two(pairs.squares(&x), 0.0);
            let x = pairs.turn(&x, &self.k_weight, self.norm_scale(a.k_norm, squares));
            let key = rounded::<HD>(&x);
            if block.warp == 0 {
                let to = block.head(a, a.keys, block.position).add(kv::key_at(slot, 0, HD));
                pairs.each(&key, |dim, v| global::store(to.add(dim as usize), to_bits(v)));
            }
            let value = row(a.shape.heads + a.shape.kv_heads + block.kv_head);
            let to = block.head(a, a.values, block.position);
            let mut dim = thread::thread_idx_x();
            while dim < HD {
                let bits = to_bits(global::load(value.add(dim as usize)));
                global::store(to.add(kv::value_at(slot, dim)), bits);
                self.room.new_value.store(dim, to_value(bits));
                dim += thread::block_dim_x();
            }
            key
        }
    }
}

/// The bits of `x` as f16.
#[inline(always)]
fn to_bits(x: f32) -> u16 {
    half2::f32_to_f16(x).to_bits()
}

/// The value of f16 bits.
#[inline(always)]
fn to_value(bits: u16) -> f32 {
    half2::f16_to_f32(half::f16::from_bits(bits))
}

/// The values as f16 keeps them.
#[inline(always)]
fn rounded<const HD: u32>(v: &Values) -> Values {
    let mut out = *v;
    unroll!(for I in 0..4 {
        if (I as u32) < HD / 64 {
            out[I] = (to_value(to_bits(v[I].0)), to_value(to_bits(v[I].1)));
        }
    });
    out
}

/// The lane's part of a dot product; pairs that a head does not have are zero.
#[inline(always)]
fn dot(x: &Values, y: &Values) -> f32 {
    let mut sum = 0.0;
    unroll!(for I in 0..4 {
        sum = float::fma(x[I].0, y[I].0, float::fma(x[I].1, y[I].1, sum));
    });
    sum
}

/// Two sums over the warp, their steps side by side.
#[inline(always)]
fn sum_two(mut x: f32, mut y: f32) -> (f32, f32) {
    unroll!(for I in 0..5 {
        let (u, v) = (warp::shuffle_xor(x, 16 >> I), warp::shuffle_xor(y, 16 >> I));
        (x, y) = (x + u, y + v);
    });
    (x, y)
}

/// A warp's running attention over its chunks.
struct Warp<const HD: u32, const WIDE: bool> {
    at: Corner,
    chunk: u32,
    keys: tile::Batch,
    values: tile::Batch,
    out: [Output; 2],
    running: [Running; 2],
}

impl<const HD: u32, const WIDE: bool> Warp<HD, WIDE> {
    /// Registers hold one batch of loads only, so each is loaded when it is needed.
    const LEAN: bool = HD > 128 || (WIDE && HD == 128);

    /// Sets out, with the keys and values of the warp's first chunk on their way.
    ///
    /// # Safety
    /// As [`attend`].
    #[inline(always)]
    unsafe fn start(a: &Arguments, block: &Block<HD>) -> Self {
        let (at, chunk) = (Corner::of(block.lane), block.share.begin + block.warp);
        let (mut keys, mut values) = (EMPTY, EMPTY);
        if !Self::LEAN && chunk < block.share.end {
            // SAFETY: the chunk holds an old token, so its page is in the table.
            unsafe {
                keys = at.keys::<HD>(block.head(a, a.keys, chunk * CHUNK), tile::slot(chunk), 0);
                values = at.values::<HD>(block.head(a, a.values, chunk * CHUNK), tile::slot(chunk), 0);
            }
        }
        Self {
            at,
            chunk,
            keys,
            values,
            out: [[[0.0; 4]; 16]; 2],
            running: [Running::NONE; 2],
        }
    }

    /// Goes through the warp's chunks.
    ///
    /// # Safety
    /// As [`attend`]; the queries are in shared memory.
    #[inline(always)]
    unsafe fn run(&mut self, a: &Arguments, block: &Block<HD>, queries: Queries<HD>) {
        while self.chunk < block.share.end {
            // SAFETY: the chunk holds an old token.
            unsafe { self.one(a, block, queries) };
            self.chunk += block.warps;
        }
    }

    /// One chunk. Up to 128 dims the next chunk's keys are loaded while its values are multiplied, and the next
    /// chunk's values behind them.
    #[inline(always)]
    unsafe fn one(&mut self, a: &Arguments, block: &Block<HD>, queries: Queries<HD>) {
        let (at, slot, token) = (self.at, tile::slot(self.chunk), self.chunk * CHUNK);
        let valid = block.position as i32 - (token + 8 * at.t) as i32;
        // SAFETY: both chunks hold old tokens.
        unsafe {
            let keys = block.head(a, a.keys, token);
            let values = block.head(a, a.values, token);
            if Self::LEAN {
                self.keys = at.keys::<HD>(keys, slot, 0);
            }
            let mut scores = [[0.0; 4]; 4];
            tile::score::<HD>(&mut scores, queries, at, &self.keys, 0);
            if tile::batches(HD) > 1 {
                warp::sync();
                let second = at.keys::<HD>(keys, slot, 1);
                tile::score::<HD>(&mut scores, queries, at, &second, 1);
            }
            if !Self::LEAN {
                self.next_keys(a, block);
            }
            let weights = self.weigh(&scores, token + 8 * at.t, block);
            let partial = token + CHUNK > block.position;
            if Self::LEAN {
                // Not before: there are no registers for it.
                warp::sync();
                self.values = at.values::<HD>(values, slot, 0);
            }
            let mut value = self.values;
            self.mix(&mut value, weights, 0, partial, valid);
            if !Self::LEAN {
                self.next_values(a, block);
            }
            if tile::batches(HD) > 1 {
                warp::sync();
                let mut value = at.values::<HD>(values, slot, 1);
                self.mix(&mut value, weights, 1, partial, valid);
            }
        }
    }

    /// Sends for the first keys of the warp's next chunk, if there is one.
    #[inline(always)]
    unsafe fn next_keys(&mut self, a: &Arguments, block: &Block<HD>) {
        let next = self.chunk + block.warps;
        if next < block.share.end {
            // SAFETY: the chunk holds an old token.
            self.keys = unsafe {
                self.at
                    .keys::<HD>(block.head(a, a.keys, next * CHUNK), tile::slot(next), 0)
            };
        }
    }

    /// Sends for the values of the warp's next chunk, if there is one.
    #[inline(always)]
    unsafe fn next_values(&mut self, a: &Arguments, block: &Block<HD>) {
        let next = self.chunk + block.warps;
        if next < block.share.end {
            // SAFETY: the chunk holds an old token.
            self.values = unsafe {
                self.at
                    .values::<HD>(block.head(a, a.values, next * CHUNK), tile::slot(next), 0)
            };
        }
    }

    /// The softmax weights of a chunk for both halves of the heads; rescales what was summed before.
    #[inline(always)]
    fn weigh(&mut self, scores: &tile::Scores, token: u32, block: &Block<HD>) -> [[u32; 4]; 2] {
        let mut weights = [[0; 4]; 2];
        unroll!(for H in 0..2 {
            if H == 0 || WIDE {
                let s = softmax::of_lane::<WIDE>(scores, H, token, block.share.first, block.position);
                let (p, before) = self.running[H].add(s);
                let (even, odd) = softmax::for_outputs(self.at, before);
                tile::rescale::<HD>(&mut self.out[H], even, odd);
                weights[H] = p;
            }
        });
        weights
    }

    #[inline(always)]
    fn mix(&mut self, values: &mut tile::Batch, weights: [[u32; 4]; 2], b: u32, partial: bool, valid: i32) {
        if partial {
            tile::clip(values, valid);
        }
        unroll!(for H in 0..2 {
            if H == 0 || WIDE {
                tile::mix::<HD>(&mut self.out[H], values, weights[H], b);
            }
        });
    }

    /// Leaves the warp's maxima, sums and outputs in shared memory.
    #[inline(always)]
    fn publish(&self, block: &Block<HD>, room: Room<HD, WIDE>) {
        unroll!(for H in 0..2 {
            if H == 0 || WIDE {
                let sum = self.running[H].total();
                if self.at.t == 0 {
                    let row = Partial {
                        max: self.running[H].max,
                        sum,
                    };
                    room.store_partial(block.warp, 8 * H as u32 + self.at.g, row);
                }
                room.store_output(block.warp, 8 * H as u32 + 2 * self.at.t, self.at.g, &self.out[H]);
            }
        });
    }
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $dims:literal, $wide:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// Prepare it with [`attention`]; see the module for formula and layouts. `counters` holds a zero for each key
        /// head before and after.
        ///
        /// # Safety
        /// The arguments of a launch that [`attention`] prepared.
        #[kernel(pdl)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            qkv: *const f32,
            q_norm: *const f32,
            k_norm: *const f32,
            frequencies: *const F32x2,
            state: *const StepState,
            table: *const u32,
            keys: *mut u16,
            values: *mut u16,
            partial: *mut f32,
            counters: *mut u32,
            out: *mut f32,
            shape: AttentionShape,
        ) {
            let workspace = Workspace { partial, counters };
            // SAFETY: passed on.
            unsafe {
                attend::<$dims, $wide>(Arguments {
                    qkv, q_norm, k_norm, frequencies, state, table, keys, values, workspace, out, shape,
                });
            }
        }
    )*};
}

kernels! {
    /// Attention of one token, heads of 64 dims, up to 8 query heads a key head.
    attention_64 = 64, false;
    /// Attention of one token, heads of 128 dims, up to 8 query heads a key head.
    attention_128 = 128, false;
    /// Attention of one token, heads of 256 dims, up to 8 query heads a key head.
    attention_256 = 256, false;
    /// Attention of one token, heads of 64 dims, 9 to 16 query heads a key head.
    attention_64_wide = 64, true;
    /// Attention of one token, heads of 128 dims, 9 to 16 query heads a key head.
    attention_128_wide = 128, true;
}

#[cfg(test)]
mod tests;
