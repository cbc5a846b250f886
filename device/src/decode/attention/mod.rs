//! Attention of one new token over a paged KV cache.
//!
//! For every query head h, with key head k = h / (heads / kv heads) and position p:
//!
//! ```text
//! q' = rope(rms(q_h) ∘ w_q, p)    k' = stored(rope(rms(k_k) ∘ w_k, p))    v' = stored(v_k)
//! cache[p] = k', v'
//! out_h = Σ_j softmax_j(scale · q' · K_j) V_j          j over the window's tokens and the new one
//! ```
//!
//! (no norm where its weights are null; stored: as the cache's [format](kv) keeps it). `qkv` is `q | k | v`, each `[head][dim]` f32; `out` is `[head][dim]` f32. The
//! cache lies as [`kv`] says; rotation is a table ([`rope`](crate::rope)).
//!
//! **Bytes**: `2 · kv heads` heads of the format for each token seen; the rest is small.
//!
//! **Shape of the work**: split-KV flash decoding. A block takes one key head and a share of the old tokens
//! ([`Share`], computed here from the position, so that one captured launch serves every depth; splits without work
//! leave at once); its warps take chunks of 16 tokens, on tensor cores ([`tile`]). All query heads of a key head share
//! each load. The last active split also takes the new token, whose key and value it has in shared memory: nothing
//! reads back what was just written. Warps meet in shared memory, splits in a workspace, where the last warp to arrive with a query
//! head adds them up ([`combine`]): the result does not depend on who was last. Splits that are one cluster meet in shared
//! memory instead ([`near`]); where they are several clusters, each leaves a part of the output, and what reads it merges
//! them ([`Parts`]).
//!
//! **What is loaded before the wait**: position, page table, frequencies, norm weights, and each warp's first two batches
//! (up to 128 dims, that is all of its first chunk). These come from the page that has the chunk in a table whose pages are
//! in order, as those of a sequence alone are, and again from the right one where the table says otherwise. Old tokens were written at least one step ago, and between then and now lies a launch that waited before it let its
//! successor start (`topk_gateup`, and the embedding at the start of a step).

mod combine;
mod digits;
pub mod general;
pub(crate) mod lane;
mod launch;
pub mod many;
mod near;
mod parts;
#[cfg(not(target_arch = "nvptx64"))]
mod reference;
mod share;
pub(crate) mod softmax;
pub(crate) mod tile;

#[cfg(not(target_arch = "nvptx64"))]
pub use launch::{AttentionBuffers, AttentionPlan, attention};
pub use parts::Parts;
#[cfg(not(target_arch = "nvptx64"))]
pub use reference::{AttentionInputs, AttentionOutputs};
pub use share::Share;

use super::kv::{self, Bf16, CHUNK, Corner, F16, KvType, Q8_0};
use super::marks::{Launch, Point};
use super::state::StepState;
use combine::{NEW, Partial, Room, Workspace};
use cuda_std::prelude::*;
use cuda_std::unroll::{remade, rolled};
use lane::{Pairs, Values};
use softmax::Running;
use tile::{Output, Scores, Weights};

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
    /// Bytes from one page of the layer's pool to the next.
    pub page_bytes: u32,
    /// Chunks of 16 tokens that a split takes at least, before another split gets any.
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
    keys: *mut u8,
    values: *mut u8,
    workspace: Workspace,
    out: *mut f32,
    shape: AttentionShape,
    /// Page i most likely holds tokens 64i …: what a warp sends for first then need not wait for the table.
    in_order: bool,
}

/// What a block knows before it waits.
struct Block<const HD: u32> {
    position: u32,
    /// The split, counted among those that it meets.
    split: u32,
    kv_head: u32,
    group: u32,
    share: Share,
    lane: u32,
    warp: u32,
    warps: u32,
}

impl<const HD: u32> Block<HD> {
    #[inline(always)]
    fn new(a: &Arguments, position: u32) -> Self {
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

    /// The same where the splits of each cluster have a part of their own, and what part it is: splits and those with work
    /// are the cluster's. Those with work come before the others, in the cluster as in the grid.
    #[inline(always)]
    fn in_part(mut self) -> (Self, u32) {
        let (part, size) = (cluster::id(), cluster::size());
        let before = part * size;
        self.split -= before;
        self.share.active = self.share.active.saturating_sub(before).min(size);
        (self, part)
    }

    /// This block takes the new token.
    #[inline(always)]
    fn owner(&self) -> bool {
        self.share.last
    }

    /// Warps that have a chunk.
    #[inline(always)]
    fn busy(&self) -> u32 {
        let chunks = self.share.end.saturating_sub(self.share.begin);
        if chunks < self.warps { chunks } else { self.warps }
    }

    /// The page of token `token`.
    ///
    /// # Safety
    /// The table has it.
    #[inline(always)]
    unsafe fn page(&self, a: &Arguments, token: u32) -> u32 {
        // SAFETY: the caller's.
        unsafe { global::load_nc(a.table.add((token / kv::PAGE_TOKENS) as usize)) }
    }

    /// Byte of a pool at which the key or value head of this block begins in page `page`.
    #[inline(always)]
    fn head<T: KvType>(&self, a: &Arguments, page: u32) -> usize {
        T::FORMAT.head_at(page, rolled(a.shape.page_bytes), remade(self.kv_head), HD)
    }
}

/// How the splits of a key head meet.
pub(crate) mod meet {
    /// In the workspace.
    pub const FAR: u32 = 0;
    /// In shared memory: they are one cluster.
    pub const NEAR: u32 = 1;
    /// Those of each cluster in shared memory, and the clusters' [`Parts`](super::Parts) where they are read.
    pub const PARTS: u32 = 2;
}
use meet::{FAR, NEAR, PARTS};

/// The kernel's body, for up to 8 query heads a key head in each of `GROUPS` groups, whose splits meet as `MEET` says. A
/// kernel has the code for one way to meet only: what it does not run stands in the way of what it runs.
///
/// # Safety
/// The arguments of a launch that [`attention`] prepared.
#[inline(always)]
unsafe fn attend<T: KvType, const HD: u32, const GROUPS: usize, const MEET: u32>(mut a: Arguments) {
    // SAFETY: all accesses are those of a prepared launch; each is explained where it is not obvious.
    unsafe {
        // The state is not written while a step runs, except by its last launch.
        let position = global::load(&raw const (*a.state).position);
        Launch::Attention.is_at(Point::Start);
        // What needs no position is on its way meanwhile.
        let mut pairs = Pairs::<HD>::of(&a.shape, warp::lane());
        let frequencies = pairs.frequencies(&a.shape, a.frequencies, warp::lane());
        let (q_weight, k_weight) = (pairs.weights(a.q_norm), pairs.weights(a.k_norm));
        let mut block = Block::<HD>::new(&a, position);
        if MEET == PARTS {
            let part;
            (block, part) = block.in_part();
            a = a.of_part::<HD>(part);
            if block.share.active == 0 {
                a.leave_nothing(&block);
                pdl::leave();
                return;
            }
        }
        let near = (MEET != FAR && cuda_std::arch::HAS_CLUSTERS).then(|| Room::<HD, GROUPS>::near(block.warps));
        if let Some(near) = near {
            near.open(&block);
        }
        // It holds no registers that the next launch needs: the blocks with work wait.
        if block.share.idle {
            if near.is_some() {
                cluster::wait();
            }
            pdl::leave();
            return;
        }
        let room = Room::<HD, GROUPS>::new(block.warps);
        let mut warp = Warp::<T, HD, GROUPS>::start(&a, &block);
        let new_head = block.head::<T>(&a, block.page(&a, block.position));
        // What needs no query is done before the wait: code that runs once is slow to fetch.
        room.clear_spare_rows::<T>(block.group);
        pairs.rotate(position, &a.shape, &frequencies, block.lane);
        // The next launch sends for its weights when it starts. Many blocks leave it no room before they end; few would let it
        // in while the weights of q, k and v are still on their way.
        let few = MEET != FAR || thread::grid_dim_x() <= near::MOST;
        if !few {
            pdl::launch_dependents();
        }
        Launch::Attention.is_at(Point::Ready);
        pdl::wait();
        if few {
            pdl::launch_dependents();
        }
        Launch::Attention.is_at(Point::Waited);

        let prepare = Prepare {
            a: &a,
            block: &block,
            pairs,
            room,
            q_weight,
            k_weight,
            new_head,
        };
        prepare.run::<T>(|| warp.settle_first(&a, &block));
        thread::sync_threads();
        Launch::Attention.is_at(Point::Input);
        warp.run(&a, &block, room);
        Launch::Attention.is_at(Point::Weights);
        if block.warp < block.busy() {
            warp.publish(&block, room);
        }
        thread::sync_threads();
        if near.is_some() {
            cluster::wait();
        }
        Launch::Attention.is_at(Point::Met);
        combine::warps::<HD, GROUPS, MEET>(&a, &block, room, near);
        match near {
            _ if block.share.active == 1 => {}
            Some(near) => near.collect::<MEET>(&a, &block),
            None => combine::splits(&a, &block),
        }
        Launch::Attention.is_at(Point::End);
    }
}

/// The heads of a block, normalised and rotated after the wait.
struct Prepare<'a, const HD: u32, const GROUPS: usize> {
    a: &'a Arguments,
    block: &'a Block<HD>,
    pairs: Pairs<HD>,
    room: Room<HD, GROUPS>,
    q_weight: Values,
    k_weight: Values,
    /// Byte of a pool at which the new token's head begins.
    new_head: usize,
}

impl<const HD: u32, const GROUPS: usize> Prepare<'_, HD, GROUPS> {
    /// Puts the block's query heads into shared memory, a warp one of them at a time. In the block that has the new token
    /// every warp also makes its key, which takes no time beside the query's: so it has the score before the warps meet.
    ///
    /// Everything is sent for before any of it is needed: the way to memory takes longer than the arithmetic. `meanwhile`
    /// is done while it comes.
    ///
    /// # Safety
    /// As [`attend`], after the wait.
    #[inline(always)]
    unsafe fn run<T: KvType>(&self, meanwhile: impl FnOnce()) {
        let (a, block) = (self.a, self.block);
        let row = |head: u32| a.qkv.wrapping_add((head * HD) as usize);
        let query = |head: u32| row(block.kv_head * block.group + head);
        let nothing = [(0.0, 0.0); 4];
        let (mut head, mut x, mut k, mut v) = (block.warp, nothing, nothing, 0.0);
        // SAFETY: heads of the group and the new token's lie in `qkv`.
        unsafe {
            if head < block.group {
                x = self.pairs.load(query(head));
            }
            if block.owner() {
                let value = row(a.shape.heads + a.shape.kv_heads + block.kv_head);
                let thread = block.warp * 32 + block.lane;
                k = self.pairs.load(row(a.shape.heads + block.kv_head));
                v = if thread < HD {
                    global::load(value.add(thread as usize))
                } else {
                    0.0
                };
            }
            meanwhile();
            if block.owner() {
                self.append_value::<T>(row(a.shape.heads + a.shape.kv_heads + block.kv_head), v);
            }
            let [mut q_scale, k_scale] = self.norm_scales([(&x, a.q_norm), (&k, a.k_norm)]);
            if block.owner() {
                k = self.append_key::<T>(&k, k_scale);
            }
            while head < block.group {
                self.head::<T>(head, &x, q_scale, &k);
                head = rolled(head + block.warps);
                if head < block.group {
                    x = self.pairs.load(query(head));
                    [q_scale, _] = self.norm_scales([(&x, a.q_norm), (&nothing, a.q_norm)]);
                }
            }
        }
    }

    /// Query head `head` of the group, which is `x`, and its score for the new token's key `k`.
    #[inline(always)]
    fn head<T: KvType>(&self, head: u32, x: &Values, norm: f32, k: &Values) {
        let (a, pairs) = (self.a, &self.pairs);
        // Scores are kept in units of log₂ e, for ex2.
        let scale = a.shape.scale * core::f32::consts::LOG2_E;
        let x = pairs.turn(x, &self.q_weight, scale * norm);
        self.room.store_query::<T>(pairs, head, &x);
        if self.block.owner() {
            let max = warp::sum(pairs.dot(&x, k));
            if self.block.lane == 0 {
                self.room.store_partial(NEW, head, Partial { max, sum: 1.0 });
            }
        }
    }

    /// The factors of two heads' norms, 1 where there are no weights; the lanes exchange both at a time.
    #[inline(always)]
    fn norm_scales(&self, heads: [(&Values, *const f32); 2]) -> [f32; 2] {
        let mut sums = heads.map(|(x, _)| self.pairs.squares(x));
        unroll!(for I in 0..5 {
            sums = [
                sums[0] + warp::shuffle_xor(sums[0], 16 >> I),
                sums[1] + warp::shuffle_xor(sums[1], 16 >> I),
            ];
        });
        let scale = |squares: f32, weight: *const f32| {
            let scale = float::rsqrt_approx(float::fma(squares, 1.0 / HD as f32, self.a.shape.eps));
            if weight.is_null() { 1.0 } else { scale }
        };
        [scale(sums[0], heads[0].1), scale(sums[1], heads[1].1)]
    }

    /// Appends the new token's key, which is `x`, and returns it as the cache has it. Every warp makes it, and stores a
    /// part of it.
    #[inline(always)]
    unsafe fn append_key<T: KvType>(&self, x: &Values, scale: f32) -> Values {
        let (a, block, pairs) = (self.a, self.block, &self.pairs);
        let slot = block.position % kv::PAGE_TOKENS;
        let x = pairs.turn(x, &self.k_weight, scale);
        // The first warps store the value.
        let (mine, last) = (block.warps - 1 - block.warp, block.warps - 1);
        pairs.each_stored::<T>(&x, self.room.scratch(block.warp), |i, dim, stored| {
            if i.min(last) == mine {
                // SAFETY: the new token's head is this block's alone.
                unsafe { T::write(a.keys.add(self.new_head), T::FORMAT.key(slot, dim, HD), dim, stored) };
            }
        })
    }

    /// Appends the new token's value, of which the thread's first dim is `v`.
    #[inline(always)]
    unsafe fn append_value<T: KvType>(&self, value: *const f32, mut v: f32) {
        let (a, block, slot) = (self.a, self.block, self.block.position % kv::PAGE_TOKENS);
        let mut dim = block.warp * 32 + block.lane;
        while dim < HD {
            let stored = T::encode(v);
            self.room.new_value.store(dim, stored.value);
            // SAFETY: the new token's head is this block's alone, and `qkv` has its row.
            unsafe {
                T::write(a.values.add(self.new_head), T::FORMAT.value(slot, dim, HD), dim, stored);
                dim = rolled(dim + thread::block_dim_x());
                if dim < HD {
                    v = global::load(value.add(dim as usize));
                }
            }
        }
    }
}

/// A warp's running attention over its chunks.
///
/// A chunk is up to four batches: its keys, then its values, of 128 dims each. Two batches are in registers or on their
/// way at any time: when one is used up, the one after the next takes its place.
struct Warp<T: KvType, const HD: u32, const GROUPS: usize> {
    at: Corner,
    chunk: u32,
    /// The pages of the warp's chunk and of the one behind it.
    pages: [u32; 2],
    loads: [T::Batch; 2],
    out: [Output; GROUPS],
    running: [Running; GROUPS],
}

impl<T: KvType, const HD: u32, const GROUPS: usize> Warp<T, HD, GROUPS> {
    /// Batches of a chunk's keys, and of its values.
    const BATCHES: usize = HD.div_ceil(128) as usize;

    /// Sets out, with the first two batches of the warp's first chunk on their way.
    ///
    /// # Safety
    /// As [`attend`].
    #[inline(always)]
    unsafe fn start(a: &Arguments, block: &Block<HD>) -> Self {
        let mut warp = Self {
            at: Corner::of(block.lane),
            chunk: block.share.begin + block.warp,
            pages: [0; 2],
            loads: [T::EMPTY; 2],
            out: [[[0.0; 4]; 16]; GROUPS],
            running: [Running::NONE; GROUPS],
        };
        if warp.chunk < block.share.end {
            // SAFETY: the chunk holds an old token, so its page is in the table.
            unsafe {
                warp.pages[0] = block.page(a, warp.chunk * CHUNK);
                warp.send_first(a, block, warp.first_page(a));
                warp.find_next(a, block);
            }
        }
        warp
    }

    /// The page that is read before the table has answered.
    #[inline(always)]
    fn first_page(&self, a: &Arguments) -> u32 {
        if a.in_order {
            self.chunk * CHUNK / kv::PAGE_TOKENS
        } else {
            self.pages[0]
        }
    }

    /// Sends for the first two batches of the warp's chunk in page `page`.
    ///
    /// # Safety
    /// The pool has the page: it is the table's, or, since a sequence's pages are all different, one of so many first ones.
    #[inline(always)]
    unsafe fn send_first(&mut self, a: &Arguments, block: &Block<HD>, page: u32) {
        // SAFETY: the caller's.
        unsafe {
            self.loads[0] = self.load(a, block, page, self.chunk, 0);
            self.loads[1] = self.load(a, block, page, self.chunk, 1);
        }
    }

    /// Sends again for the first two batches if they came from another page than the table's, and takes the tokens that are
    /// none out of the first chunk's values, if they have come with them.
    ///
    /// # Safety
    /// As [`attend`].
    #[inline(always)]
    unsafe fn settle_first(&mut self, a: &Arguments, block: &Block<HD>) {
        if self.chunk >= block.share.end {
            return;
        }
        if a.in_order && self.pages[0] != self.first_page(a) {
            // SAFETY: the table's page.
            unsafe { self.send_first(a, block, self.pages[0]) };
        }
        let valid = block.position as i32 - (self.chunk * CHUNK) as i32;
        if Self::BATCHES == 1 && valid < CHUNK as i32 {
            T::clip(&mut self.loads[1], self.at, valid);
        }
    }

    /// Looks up the page of the chunk behind this one, or of the last one where there is none: a register that is loaded
    /// in some cases only would be waited for at once.
    #[inline(always)]
    unsafe fn find_next(&mut self, a: &Arguments, block: &Block<HD>) {
        let (next, last) = (self.chunk + block.warps, block.share.end - 1);
        let next = if next < last { next } else { last };
        // SAFETY: the chunk holds an old token.
        self.pages[1] = unsafe { block.page(a, next * CHUNK) };
    }

    /// Sends for batch `i` of chunk `chunk`, which lies in page `page`.
    #[inline(always)]
    unsafe fn load(&self, a: &Arguments, block: &Block<HD>, page: u32, chunk: u32, i: usize) -> T::Batch {
        let head = block.head::<T>(a, page);
        let within = chunk % (kv::PAGE_TOKENS / CHUNK);
        let (pool, batch) = if i < Self::BATCHES {
            (a.keys, i)
        } else {
            (a.values, i - Self::BATCHES)
        };
        // SAFETY: the page's heads are readable.
        unsafe { T::load::<HD>(pool.add(head), within, self.at, batch as u32) }
    }

    /// Goes through the warp's chunks.
    ///
    /// # Safety
    /// As [`attend`]; the queries are in shared memory.
    #[inline(always)]
    unsafe fn run(&mut self, a: &Arguments, block: &Block<HD>, room: Room<HD, GROUPS>) {
        let scales = if T::FORMAT.scaled() {
            room.digits().scales(self.at)
        } else {
            [1.0; GROUPS]
        };
        while self.chunk < block.share.end {
            // SAFETY: the chunk holds an old token.
            unsafe {
                self.one(a, block, room, &scales);
                self.pages[0] = self.pages[1];
                self.chunk = rolled(self.chunk + block.warps);
                self.find_next(a, block);
            }
        }
    }

    /// One chunk.
    #[inline(always)]
    unsafe fn one(&mut self, a: &Arguments, block: &Block<HD>, room: Room<HD, GROUPS>, scales: &[f32; GROUPS]) {
        let (at, token) = (self.at, self.chunk * CHUNK);
        let mut scores = [[[0.0; 4]; 2]; GROUPS];
        let mut weights = [[[0; 2]; 2]; GROUPS];
        unroll!(for U in 0..4 {
            if U < 2 * Self::BATCHES {
                if U < Self::BATCHES {
                    let keys = &self.loads[U % 2];
                    if T::FORMAT.scaled() {
                        digits::score::<T, HD, GROUPS>(&mut scores, room.digits(), at, keys, U as u32);
                    } else {
                        tile::score::<T, HD, GROUPS>(&mut scores, &room.queries, at, keys, U as u32);
                    }
                } else {
                    if U == Self::BATCHES {
                        weights = self.weigh(&scores, scales, token + 2 * at.t, block);
                    }
                    let clipped = Self::BATCHES == 1 && self.chunk < block.share.begin + block.warps;
                    self.mix(U, &weights, block.position as i32 - token as i32, clipped);
                }
                // SAFETY: the next chunk holds an old token, if there is one.
                unsafe { self.refill(a, block, U) };
            }
        });
    }

    /// Sends for the batch two behind batch `used` of the chunk, in its place.
    #[inline(always)]
    unsafe fn refill(&mut self, a: &Arguments, block: &Block<HD>, used: usize) {
        let (i, next) = (used + 2, self.chunk + block.warps);
        // SAFETY: the caller's.
        unsafe {
            if i < 2 * Self::BATCHES {
                self.loads[used % 2] = self.load(a, block, self.pages[0], self.chunk, i);
            } else if next < block.share.end {
                self.loads[used % 2] = self.load(a, block, self.pages[1], next, i - 2 * Self::BATCHES);
            }
        }
    }

    /// The softmax weights of a chunk for each group; rescales what was summed before.
    #[inline(always)]
    fn weigh(
        &mut self,
        scores: &[Scores; GROUPS],
        scales: &[f32; GROUPS],
        token: u32,
        block: &Block<HD>,
    ) -> [Weights; GROUPS] {
        let mut weights = [[[0; 2]; 2]; GROUPS];
        unroll!(for G in 0..GROUPS {
            let (begin, end) = (block.share.first, block.position);
            let s = if T::FORMAT.scaled() {
                digits::of_lane(&scores[G], scales[G], token, begin, end)
            } else {
                softmax::of_lane(&scores[G], token, begin, end)
            };
            let first = self.running[G].max == f32::NEG_INFINITY;
            let ([p], before) = self.running[G].add::<T, 1>([s]);
            // Most chunks bring no new maximum, and before the first one there is nothing.
            if warp::any(before != 1.0 && !first) {
                let (even, odd) = softmax::for_outputs(self.at, before);
                tile::rescale::<HD>(&mut self.out[G], even, odd);
            }
            weights[G] = p;
        });
        weights
    }

    /// Adds the values of batch `i` of the chunk, of which the first `valid` tokens are there.
    #[inline(always)]
    fn mix(&mut self, i: usize, weights: &[Weights; GROUPS], valid: i32, clipped: bool) {
        warp::sync();
        if valid < CHUNK as i32 && !clipped {
            T::clip(&mut self.loads[i % 2], self.at, valid);
        }
        unroll!(for G in 0..GROUPS {
            tile::mix::<T, HD>(
                &mut self.out[G],
                &self.loads[i % 2],
                &weights[G],
                (i - Self::BATCHES) as u32,
            );
        });
    }

    /// Leaves the warp's maxima, sums and outputs in shared memory.
    #[inline(always)]
    fn publish(&self, block: &Block<HD>, room: Room<HD, GROUPS>) {
        unroll!(for G in 0..GROUPS {
            let sum = self.running[G].total();
            if self.at.t == 0 {
                let row = Partial {
                    max: self.running[G].max,
                    sum,
                };
                room.store_partial(block.warp, 8 * G as u32 + self.at.g, row);
            }
            room.store_output(block.warp, 8 * G as u32 + 2 * self.at.t, self.at.g, &self.out[G]);
        });
    }
}

macro_rules! kernels {
    ($($name:ident = $format:ident, $dims:literal, $groups:literal, $meet:ident, $registers:literal, $doc:literal;)*) => {$(
        #[doc = $doc]
        ///
        /// Prepare it with [`attention`]; see the module for formula and layouts. `counters` holds a zero for each query
        /// head before and after.
        ///
        /// # Safety
        /// The arguments of a launch that [`attention`] prepared.
        #[kernel(pdl, registers = $registers)]
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
            partial: *mut f32,
            counters: *mut u32,
            out: *mut f32,
            shape: AttentionShape,
        ) {
            let workspace = Workspace { partial, counters };
            // SAFETY: passed on.
            unsafe {
                attend::<$format, $dims, $groups, $meet>(Arguments {
                    qkv, q_norm, k_norm, frequencies, state, table, keys, values, workspace, out, shape,
                    in_order: true,
                });
            }
        }
    )*};
}

kernels! {
    attention_64_f16 = F16, 64, 1, FAR, 128, "Attention over f16, heads of 64 dims, up to 8 query heads a key head.";
    attention_128_f16 = F16, 128, 1, FAR, 136, "Attention over f16, heads of 128 dims, up to 8 query heads a key head.";
    attention_256_f16 = F16, 256, 1, FAR, 224, "Attention over f16, heads of 256 dims, up to 8 query heads a key head.";
    attention_64_f16_wide = F16, 64, 2, FAR, 224, "Attention over f16, heads of 64 dims, 9 to 16 query heads a key head.";
    attention_128_f16_wide = F16, 128, 2, FAR, 224, "Attention over f16, heads of 128 dims, 9 to 16 query heads a key head.";
    attention_64_bf16 = Bf16, 64, 1, FAR, 128, "Attention over bf16, heads of 64 dims, up to 8 query heads a key head.";
    attention_128_bf16 = Bf16, 128, 1, FAR, 136, "Attention over bf16, heads of 128 dims, up to 8 query heads a key head.";
    attention_256_bf16 = Bf16, 256, 1, FAR, 224, "Attention over bf16, heads of 256 dims, up to 8 query heads a key head.";
    attention_64_bf16_wide = Bf16, 64, 2, FAR, 224, "Attention over bf16, heads of 64 dims, 9 to 16 query heads a key head.";
    attention_128_bf16_wide = Bf16, 128, 2, FAR, 224, "Attention over bf16, heads of 128 dims, 9 to 16 query heads a key head.";
    attention_64_q8_0 = Q8_0, 64, 1, FAR, 128, "Attention over q8_0, heads of 64 dims, up to 8 query heads a key head.";
    attention_128_q8_0 = Q8_0, 128, 1, FAR, 136, "Attention over q8_0, heads of 128 dims, up to 8 query heads a key head.";
    attention_256_q8_0 = Q8_0, 256, 1, FAR, 224, "Attention over q8_0, heads of 256 dims, up to 8 query heads a key head.";
    attention_64_q8_0_wide = Q8_0, 64, 2, FAR, 224, "Attention over q8_0, heads of 64 dims, 9 to 16 query heads a key head.";
    attention_128_q8_0_wide = Q8_0, 128, 2, FAR, 224, "Attention over q8_0, heads of 128 dims, 9 to 16 query heads a key head.";
    attention_64_f16_cluster = F16, 64, 1, NEAR, 128, "Attention over f16, heads of 64 dims, up to 8 query heads a key head, whose splits are a cluster.";
    attention_128_f16_cluster = F16, 128, 1, NEAR, 136, "Attention over f16, heads of 128 dims, up to 8 query heads a key head, whose splits are a cluster.";
    attention_256_f16_cluster = F16, 256, 1, NEAR, 224, "Attention over f16, heads of 256 dims, up to 8 query heads a key head, whose splits are a cluster.";
    attention_64_bf16_cluster = Bf16, 64, 1, NEAR, 128, "Attention over bf16, heads of 64 dims, up to 8 query heads a key head, whose splits are a cluster.";
    attention_128_bf16_cluster = Bf16, 128, 1, NEAR, 136, "Attention over bf16, heads of 128 dims, up to 8 query heads a key head, whose splits are a cluster.";
    attention_256_bf16_cluster = Bf16, 256, 1, NEAR, 224, "Attention over bf16, heads of 256 dims, up to 8 query heads a key head, whose splits are a cluster.";
    attention_64_q8_0_cluster = Q8_0, 64, 1, NEAR, 128, "Attention over q8_0, heads of 64 dims, up to 8 query heads a key head, whose splits are a cluster.";
    attention_128_q8_0_cluster = Q8_0, 128, 1, NEAR, 136, "Attention over q8_0, heads of 128 dims, up to 8 query heads a key head, whose splits are a cluster.";
    attention_256_q8_0_cluster = Q8_0, 256, 1, NEAR, 224, "Attention over q8_0, heads of 256 dims, up to 8 query heads a key head, whose splits are a cluster.";
    attention_64_f16_parts = F16, 64, 1, PARTS, 128, "Attention over f16, heads of 64 dims, up to 8 query heads a key head, whose splits are several clusters.";
    attention_128_f16_parts = F16, 128, 1, PARTS, 136, "Attention over f16, heads of 128 dims, up to 8 query heads a key head, whose splits are several clusters.";
    attention_256_f16_parts = F16, 256, 1, PARTS, 224, "Attention over f16, heads of 256 dims, up to 8 query heads a key head, whose splits are several clusters.";
    attention_64_bf16_parts = Bf16, 64, 1, PARTS, 128, "Attention over bf16, heads of 64 dims, up to 8 query heads a key head, whose splits are several clusters.";
    attention_128_bf16_parts = Bf16, 128, 1, PARTS, 136, "Attention over bf16, heads of 128 dims, up to 8 query heads a key head, whose splits are several clusters.";
    attention_256_bf16_parts = Bf16, 256, 1, PARTS, 224, "Attention over bf16, heads of 256 dims, up to 8 query heads a key head, whose splits are several clusters.";
    attention_64_q8_0_parts = Q8_0, 64, 1, PARTS, 128, "Attention over q8_0, heads of 64 dims, up to 8 query heads a key head, whose splits are several clusters.";
    attention_128_q8_0_parts = Q8_0, 128, 1, PARTS, 136, "Attention over q8_0, heads of 128 dims, up to 8 query heads a key head, whose splits are several clusters.";
    attention_256_q8_0_parts = Q8_0, 256, 1, PARTS, 224, "Attention over q8_0, heads of 256 dims, up to 8 query heads a key head, whose splits are several clusters.";
}

#[cfg(test)]
mod tests;
