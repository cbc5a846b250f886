//! Causal attention of a prompt's tokens over the paged cache, in which they are already.
//!
//! `out[i][h] = Σ_j softmax_j(q_ih · K_j) V_j` for j up to token i's own position, from the window's first on; queries as
//! [`append`](super::append) leaves them (scaled, in units of log₂ e, hi and lo), the cache as
//! [`kv`] says, `out` `[token][head][dim]` f32.
//!
//! **Bytes**: the queries once; the cache of a key head once for every 16 rows, from L2. **Shape of the work**: all query
//! heads of a key head see the same cache, so a row is a token and one of its heads; a warp takes 16 rows
//! (2 tokens × 8 heads in most models; of heads of 256 dims 8 rows) through the cache 32 tokens at a time, by the
//! tensor-core scheme of the [decode kernel](crate::decode::attention), in which they are two groups (one). Warps share
//! nothing: no barrier, no shared memory.
//!
//! **Launch**: [`attention`].

use super::append::Chunk;
#[cfg(not(target_arch = "nvptx64"))]
use super::append::HeadBuffers;
use crate::decode::attention::AttentionShape;
use crate::decode::attention::softmax::{self, Running};
use crate::decode::attention::tile::{self, Output, Rows, Scores, Weights, query_at};
#[cfg(not(target_arch = "nvptx64"))]
use crate::decode::kv::KvFormat;
use crate::decode::kv::{self, Bf16, CHUNK, Corner, F16, KvType, Q8_0};
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 4;
/// Groups of 8 rows that a warp takes of heads of `dims` dims: what registers leave room for.
const fn groups(dims: u32) -> usize {
    if dims > 128 { 1 } else { 2 }
}
/// Tokens of the cache that a warp takes at a time.
const STEP: u32 = 2 * CHUNK;

/// Where the launch reads and writes.
struct Arguments {
    queries: *const u16,
    table: *const u32,
    keys: *const u8,
    values: *const u8,
    out: *mut f32,
    shape: AttentionShape,
    chunk: Chunk,
}

/// Where a row of the warp belongs.
#[derive(Clone, Copy)]
struct Row {
    token: u32,
    head: u32,
}

/// A warp's place, of `GROUPS` times 8 rows.
struct Place<const HD: u32, const GROUPS: usize> {
    at: Corner,
    kv_head: u32,
    group: u32,
    first: u32,
    /// Rows of the key head in this chunk.
    rows: u32,
}

impl<const HD: u32, const GROUPS: usize> Place<HD, GROUPS> {
    /// Rows of a warp.
    const ROWS: u32 = 8 * GROUPS as u32;

    #[inline(always)]
    fn new(a: &Arguments) -> Self {
        let heads_per_key = a.shape.heads / a.shape.kv_heads.max(1);
        let group = if heads_per_key == 0 { 1 } else { heads_per_key };
        Self {
            at: Corner::of(warp::lane()),
            kv_head: thread::block_idx_y(),
            group,
            first: (thread::block_idx_x() * WARPS + thread::thread_idx_x() / 32) * Self::ROWS,
            rows: a.chunk.count * group,
        }
    }

    /// Row `i` of the warp; the first one where there is none.
    #[inline(always)]
    fn row(&self, i: u32) -> Row {
        let row = self.first + i;
        let row = if row < self.rows { row } else { self.first };
        let group = self.group.max(1);
        Row {
            token: row / group,
            head: self.kv_head * group + row % group,
        }
    }

    /// Index of the row's first dim among outputs; half of that among queries.
    #[inline(always)]
    fn index(&self, a: &Arguments, row: Row) -> usize {
        (row.token as usize * a.shape.heads as usize + row.head as usize) * HD as usize
    }

    /// The tokens that one of the warp's rows sees, from the beginning of a step on.
    #[inline(always)]
    fn range(&self, a: &Arguments) -> (u32, u32) {
        let (first, last) = (self.row(0).token, self.row(Self::ROWS - 1).token);
        let begin = a.begin(a.end(first)) / STEP * STEP;
        let end = if self.first + Self::ROWS > self.rows {
            a.chunk.position + a.chunk.count
        } else {
            a.end(last)
        };
        (begin, end)
    }
}

impl Arguments {
    /// Where the tokens of the cache end that token `token` of the chunk sees.
    #[inline(always)]
    fn end(&self, token: u32) -> u32 {
        self.chunk.position + token + 1
    }

    /// Where they begin, if they end at `end`.
    #[inline(always)]
    fn begin(&self, end: u32) -> u32 {
        let window = self.shape.window;
        if window == 0 || end < window { 0 } else { end - window }
    }
}

/// The lane's rows, from its first dims on: row g of each of the warp's groups.
struct Queries<const GROUPS: usize>([*const u16; GROUPS]);

impl<const GROUPS: usize> Rows for Queries<GROUPS> {
    #[inline(always)]
    fn fragments(&self, _at: Corner, group: usize, c: u32) -> [[u32; 4]; 2] {
        let from = self.0[group].wrapping_add(query_at(32 * c) as usize).cast::<U32x4>();
        // SAFETY: a launch's rows have queries.
        unsafe { [global::load(from).0, global::load(from.wrapping_add(1)).0] }
    }
}

/// The running attention of a warp's rows, in groups of 8.
struct Attention<const GROUPS: usize> {
    out: [Output; GROUPS],
    running: [Running; GROUPS],
}

/// A batch of the keys, or of the values, of chunks `chunk` and `chunk + 1` of a page.
///
/// # Safety
/// As [`KvType::load`].
#[inline(always)]
unsafe fn two_batches<T: KvType, const HD: u32>(head: *const u8, chunk: u32, at: Corner, batch: u32) -> [T::Batch; 2] {
    // SAFETY: passed on.
    unsafe {
        [
            T::load::<HD>(head, chunk, at, batch),
            T::load::<HD>(head, chunk + 1, at, batch),
        ]
    }
}

/// The warp's rows over all tokens that one of them sees.
///
/// # Safety
/// The arguments of a launch that [`attention`] prepared.
#[inline(always)]
unsafe fn attend<T: KvType, const HD: u32, const GROUPS: usize>(a: &Arguments) {
    let place = Place::<HD, GROUPS>::new(a);
    if place.first >= place.rows {
        return;
    }
    let at = place.at;
    let (mut queries, mut seen) = ([a.queries; GROUPS], [0; GROUPS]);
    unroll!(for G in 0..2 {
        if G < GROUPS {
            let row = place.row(at.g + 8 * G as u32);
            let first = 2 * place.index(a, row) + query_at(8 * at.t) as usize;
            queries[G] = a.queries.wrapping_add(first);
            seen[G] = a.end(row.token);
        }
    });
    let queries = Queries(queries);
    let written = a.chunk.position + a.chunk.count;
    let mut state = Attention::<GROUPS> {
        out: [[[0.0; 4]; 16]; GROUPS],
        running: [Running::FINITE; GROUPS],
    };
    let (mut token, end) = place.range(a);
    while token < end {
        // SAFETY: the step begins with a token that is in the cache, so its page is in the table.
        unsafe {
            let page = global::load(a.table.add((token / kv::PAGE_TOKENS) as usize));
            let head = T::FORMAT.head_at(page, a.shape.page_bytes, place.kv_head, HD);
            let chunk = token / CHUNK % (kv::PAGE_TOKENS / CHUNK);
            let (keys, values) = (a.keys.add(head), a.values.add(head));
            // With scales or two batches there are no registers for all of it at once.
            let late = T::FORMAT.scaled() || HD > 128;
            let mut v = [T::EMPTY; 2];
            let mut scores = [[[[0.0; 4]; 2]; GROUPS]; 2];
            unroll!(for B in 0..2 {
                if (B as u32) < HD.div_ceil(128) {
                    let k = two_batches::<T, HD>(keys, chunk, at, B as u32);
                    if !late {
                        v = two_batches::<T, HD>(values, chunk, at, 0);
                    }
                    unroll!(for I in 0..2 {
                        tile::score::<T, HD, GROUPS>(&mut scores[I], &queries, at, &k[I], B as u32);
                    });
                }
            });
            let weights = state.weigh::<T, HD>(a, at, &scores, (token + 2 * at.t, seen));
            unroll!(for B in 0..2 {
                if (B as u32) < HD.div_ceil(128) {
                    if late {
                        warp::sync();
                        v = two_batches::<T, HD>(values, chunk, at, B as u32);
                    }
                    unroll!(for I in 0..2 {
                        let first = token + CHUNK * I as u32;
                        if first + CHUNK > written {
                            T::clip(&mut v[I], at, written as i32 - first as i32);
                        }
                        unroll!(for G in 0..2 {
                            if G < GROUPS {
                                tile::mix::<T, HD>(&mut state.out[G], &v[I], &weights[G][I], B as u32);
                            }
                        });
                    });
                }
            });
        }
        token += STEP;
    }
    // SAFETY: the output has the rows.
    unsafe { state.store(a, &place) }
}

impl<const GROUPS: usize> Attention<GROUPS> {
    /// The weights of two chunks, of which the lane's tokens begin with `token`, for each group; what row g of group G sees
    /// ends at `seen[G]`.
    #[inline(always)]
    fn weigh<T: KvType, const HD: u32>(
        &mut self,
        a: &Arguments,
        at: Corner,
        scores: &[[Scores; GROUPS]; 2],
        (token, seen): (u32, [u32; GROUPS]),
    ) -> [[Weights; 2]; GROUPS] {
        let mut weights = [[[[0; 2]; 2]; 2]; GROUPS];
        unroll!(for G in 0..2 {
            if G < GROUPS {
                let mut s = [[0.0; 4]; 2];
                unroll!(for I in 0..2 {
                    s[I] = softmax::of_lane(&scores[I][G], token + CHUNK * I as u32, a.begin(seen[G]), seen[G]);
                });
                let (w, before) = self.running[G].add::<T, 2>(s);
                if warp::any(before != 1.0) {
                    let (even, odd) = softmax::for_outputs(at, before);
                    tile::rescale::<HD>(&mut self.out[G], even, odd);
                }
                weights[G] = w;
            }
        });
        weights
    }

    /// Writes the rows that there are.
    ///
    /// # Safety
    /// The output has the rows. All lanes of the warp call this together.
    #[inline(always)]
    unsafe fn store<const HD: u32>(&self, a: &Arguments, place: &Place<HD, GROUPS>) {
        let at = place.at;
        unroll!(for H in 0..2 {
            if H < GROUPS {
                let (even, odd) = softmax::for_outputs(at, float::rcp(self.running[H].total()));
                unroll!(for I in 0..2 {
                    let row = 8 * H as u32 + 2 * at.t + I as u32;
                    let scale = if I == 0 { even } else { odd };
                    if place.first + row < place.rows {
                        let to = a.out.wrapping_add(place.index(a, place.row(row)) + at.g as usize);
                        unroll!(for M in 0..16 {
                            if (M as u32) < HD / 16 {
                                // SAFETY: the row exists, and dims 16m + g and 16m + g + 8 in it.
                                unsafe {
                                    global::store(to.add(16 * M), self.out[H][M][I] * scale);
                                    global::store(to.add(16 * M + 8), self.out[H][M][2 + I] * scale);
                                }
                            }
                        });
                    }
                });
            }
        });
    }
}

macro_rules! kernels {
    ($($name:ident = $format:ident, $dims:literal, $doc:literal;)*) => {$(
        #[doc = $doc]
        ///
        /// Prepare it with [`attention`]; see the module for formula and layouts.
        ///
        /// # Safety
        /// The arguments of a launch that [`attention`] prepared.
        #[kernel(pdl)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            queries: *const u16,
            table: *const u32,
            keys: *const u8,
            values: *const u8,
            out: *mut f32,
            shape: AttentionShape,
            chunk: Chunk,
        ) {
            pdl::wait();
            let a = Arguments { queries, table, keys, values, out, shape, chunk };
            // SAFETY: passed on.
            unsafe { attend::<$format, $dims, { groups($dims) }>(&a) }
        }
    )*};
}

kernels! {
    prefill_attention_64_f16 = F16, 64, "Causal attention of a prompt over f16, heads of 64 dims.";
    prefill_attention_128_f16 = F16, 128, "Causal attention of a prompt over f16, heads of 128 dims.";
    prefill_attention_256_f16 = F16, 256, "Causal attention of a prompt over f16, heads of 256 dims.";
    prefill_attention_64_bf16 = Bf16, 64, "Causal attention of a prompt over bf16, heads of 64 dims.";
    prefill_attention_128_bf16 = Bf16, 128, "Causal attention of a prompt over bf16, heads of 128 dims.";
    prefill_attention_256_bf16 = Bf16, 256, "Causal attention of a prompt over bf16, heads of 256 dims.";
    prefill_attention_64_q8_0 = Q8_0, 64, "Causal attention of a prompt over q8_0, heads of 64 dims.";
    prefill_attention_128_q8_0 = Q8_0, 128, "Causal attention of a prompt over q8_0, heads of 128 dims.";
    prefill_attention_256_q8_0 = Q8_0, 256, "Causal attention of a prompt over q8_0, heads of 256 dims.";
}

/// The launch for a chunk whose tokens are in the cache already. Not a programmatic dependent one: the cache is read as
/// memory that nothing writes any more.
///
/// # Errors
/// As [`append`](super::append::append).
#[cfg(not(target_arch = "nvptx64"))]
pub fn attention(
    b: &HeadBuffers,
    shape: AttentionShape,
    (format, head_dim): (KvFormat, u32),
    chunk: Chunk,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    super::append::check("prefill_attention", &shape, head_dim, chunk)?;
    let rows = chunk.count * (shape.heads / shape.kv_heads);
    let grid = [rows.div_ceil(8 * groups(head_dim) as u32 * WARPS), shape.kv_heads, 1];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * WARPS, 1, 1]);
    let prepare = match (format, head_dim) {
        (KvFormat::F16, 64) => prefill_attention_64_f16::prepare,
        (KvFormat::F16, 128) => prefill_attention_128_f16::prepare,
        (KvFormat::F16, _) => prefill_attention_256_f16::prepare,
        (KvFormat::Bf16, 64) => prefill_attention_64_bf16::prepare,
        (KvFormat::Bf16, 128) => prefill_attention_128_bf16::prepare,
        (KvFormat::Bf16, _) => prefill_attention_256_bf16::prepare,
        (KvFormat::Q8_0, 64) => prefill_attention_64_q8_0::prepare,
        (KvFormat::Q8_0, 128) => prefill_attention_128_q8_0::prepare,
        (KvFormat::Q8_0, _) => prefill_attention_256_q8_0::prepare,
    };
    Ok(prepare(
        config, b.queries, b.table, b.keys, b.values, b.out, shape, chunk,
    ))
}
