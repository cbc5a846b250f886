//! Causal attention of a prompt's tokens over the paged cache, in which they are already.
//!
//! `out[i][h] = Σ_j softmax_j(q_ih · K_j) V_j` for j up to token i's own position; queries as
//! [`append`](super::append) leaves them (scaled, in units of log₂ e, hi and lo), the cache as
//! [`kv`] says, `out` `[token][head][dim]` f32.
//!
//! **Bytes**: the queries once; the cache of a key head once for every 16 rows, from L2. **Shape of the work**: all query
//! heads of a key head see the same cache, so a row is a token and one of its heads; a warp takes 16 rows
//! (2 tokens × 8 heads in most models) through the cache 32 tokens at a time, by the tensor-core scheme of the
//! [decode kernel](crate::decode::attention), in which they are two groups. Warps share nothing: no barrier, no shared memory.
//!
//! **Launch**: [`attention`].

use super::append::Chunk;
#[cfg(not(target_arch = "nvptx64"))]
use super::append::HeadBuffers;
use crate::decode::attention::AttentionShape;
use crate::decode::attention::softmax::{self, Running};
use crate::decode::attention::tile::{self, Output, Rows, Scores, query_at};
#[cfg(not(target_arch = "nvptx64"))]
use crate::decode::kv::KvFormat;
use crate::decode::kv::{self, Bf16, CHUNK, Corner, F16, KvType, Q8_0};
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 4;
/// Rows of a warp.
const ROWS: u32 = 16;
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

/// A warp's place.
struct Place<const HD: u32> {
    at: Corner,
    kv_head: u32,
    group: u32,
    first: u32,
    /// Rows of the key head in this chunk.
    rows: u32,
}

impl<const HD: u32> Place<HD> {
    #[inline(always)]
    fn new(a: &Arguments) -> Self {
        let heads_per_key = a.shape.heads / a.shape.kv_heads.max(1);
        let group = if heads_per_key == 0 { 1 } else { heads_per_key };
        Self {
            at: Corner::of(warp::lane()),
            kv_head: thread::block_idx_y(),
            group,
            first: (thread::block_idx_x() * WARPS + thread::thread_idx_x() / 32) * ROWS,
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
}

/// The lane's rows, from its first dims on: g of the warp's first eight, and of its last.
struct Queries([*const u16; 2]);

impl Rows for Queries {
    #[inline(always)]
    fn fragments(&self, _at: Corner, group: usize, c: u32) -> [[u32; 4]; 2] {
        let from = self.0[group].wrapping_add(query_at(32 * c) as usize).cast::<U32x4>();
        // SAFETY: a launch's rows have queries.
        unsafe { [global::load(from).0, global::load(from.wrapping_add(1)).0] }
    }
}

/// The running attention of a warp's rows: 0 … 7 and 8 … 15.
struct Attention {
    out: [Output; 2],
    running: [Running; 2],
}

/// The values of chunks `chunk` and `chunk + 1` of a page.
///
/// # Safety
/// As [`KvType::load_values`].
#[inline(always)]
unsafe fn two_values<T: KvType, const HD: u32>(head: *const u8, chunk: u32, at: Corner) -> [T::Batch; 2] {
    // SAFETY: passed on.
    unsafe {
        [
            T::load_values::<HD>(head, chunk, at, 0),
            T::load_values::<HD>(head, chunk + 1, at, 0),
        ]
    }
}

/// The warp's rows over all tokens that one of them sees.
///
/// # Safety
/// The arguments of a launch that [`attention`] prepared.
#[inline(always)]
unsafe fn attend<T: KvType, const HD: u32>(a: &Arguments) {
    let place = Place::<HD>::new(a);
    if place.first >= place.rows {
        return;
    }
    let at = place.at;
    let (even, odd) = (place.row(at.g), place.row(at.g + 8));
    let query = |row: Row| {
        let first = 2 * place.index(a, row) + query_at(8 * at.t) as usize;
        a.queries.wrapping_add(first)
    };
    let queries = Queries([query(even), query(odd)]);
    // Tokens that a row sees end behind itself; those of the cache behind the chunk.
    let seen = [a.chunk.position + even.token + 1, a.chunk.position + odd.token + 1];
    let written = a.chunk.position + a.chunk.count;
    let last = a.chunk.position + place.row(ROWS - 1).token.max(place.row(0).token) + 1;
    let end = if place.first + ROWS > place.rows { written } else { last };
    let mut state = Attention {
        out: [[[0.0; 4]; 16]; 2],
        running: [Running::NONE; 2],
    };
    let mut token = 0;
    while token < end {
        // SAFETY: the step begins with a token that is in the cache, so its page is in the table.
        unsafe {
            let page = global::load(a.table.add((token / kv::PAGE_TOKENS) as usize));
            let head = T::FORMAT.head_at(page, a.shape.page_bytes, place.kv_head, HD);
            let chunk = token / CHUNK % (kv::PAGE_TOKENS / CHUNK);
            let (keys, values) = (a.keys.add(head), a.values.add(head));
            let (mut k, mut v) = ([T::EMPTY; 2], [T::EMPTY; 2]);
            let mut scores = [[[[0.0; 4]; 2]; 2]; 2];
            unroll!(for I in 0..2 {
                k[I] = T::load_keys::<HD>(keys, chunk + I as u32, at, 0);
            });
            // With scales there are no registers for all of it at once.
            if !T::FORMAT.scaled() {
                v = two_values::<T, HD>(values, chunk, at);
            }
            unroll!(for I in 0..2 {
                tile::score::<T, HD, 2>(&mut scores[I], &queries, at, &k[I], 0);
            });
            if T::FORMAT.scaled() {
                warp::sync();
                v = two_values::<T, HD>(values, chunk, at);
            }
            unroll!(for I in 0..2 {
                let first = token + CHUNK * I as u32;
                if first + CHUNK > written {
                    T::clip(&mut v[I], at, written as i32 - first as i32);
                }
            });
            state.add::<T, HD>(at, &scores, &v, token + 2 * at.t, seen);
        }
        token += STEP;
    }
    // SAFETY: the output has the rows.
    unsafe { state.store(a, &place) }
}

impl Attention {
    /// Adds two chunks, of which the lane's tokens begin with `token`; row g sees those below `seen[0]`, row g + 8 those
    /// below `seen[1]`. The first tokens of the cache come first and every row sees them, so that there is a maximum.
    #[inline(always)]
    fn add<T: KvType, const HD: u32>(
        &mut self,
        at: Corner,
        scores: &[[Scores; 2]; 2],
        values: &[T::Batch; 2],
        token: u32,
        seen: [u32; 2],
    ) {
        unroll!(for G in 0..2 {
            let mut s = [[0.0; 4]; 2];
            unroll!(for I in 0..2 {
                s[I] = softmax::of_lane(&scores[I][G], token + CHUNK * I as u32, 0, seen[G]);
            });
            let (weights, before) = self.running[G].add::<T, 2>(s);
            if warp::any(before != 1.0) {
                let (even, odd) = softmax::for_outputs(at, before);
                tile::rescale::<HD>(&mut self.out[G], even, odd);
            }
            unroll!(for I in 0..2 {
                tile::mix::<T, HD>(&mut self.out[G], &values[I], &weights[I], 0);
            });
        });
    }

    /// Writes the rows that there are.
    ///
    /// # Safety
    /// The output has the rows. All lanes of the warp call this together.
    #[inline(always)]
    unsafe fn store<const HD: u32>(&self, a: &Arguments, place: &Place<HD>) {
        let at = place.at;
        unroll!(for H in 0..2 {
            let (even, odd) = softmax::for_outputs(at, float::rcp(self.running[H].total()));
            unroll!(for I in 0..2 {
                let row = 8 * H as u32 + 2 * at.t + I as u32;
                let scale = if I == 0 { even } else { odd };
                if place.first + row < place.rows {
                    let to = a.out.wrapping_add(place.index(a, place.row(row)) + at.g as usize);
                    unroll!(for M in 0..8 {
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
            unsafe { attend::<$format, $dims>(&a) }
        }
    )*};
}

kernels! {
    prefill_attention_64_f16 = F16, 64, "Causal attention of a prompt over f16, heads of 64 dims.";
    prefill_attention_128_f16 = F16, 128, "Causal attention of a prompt over f16, heads of 128 dims.";
    prefill_attention_64_bf16 = Bf16, 64, "Causal attention of a prompt over bf16, heads of 64 dims.";
    prefill_attention_128_bf16 = Bf16, 128, "Causal attention of a prompt over bf16, heads of 128 dims.";
    prefill_attention_64_q8_0 = Q8_0, 64, "Causal attention of a prompt over q8_0, heads of 64 dims.";
    prefill_attention_128_q8_0 = Q8_0, 128, "Causal attention of a prompt over q8_0, heads of 128 dims.";
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
    let grid = [rows.div_ceil(ROWS * WARPS), shape.kv_heads, 1];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * WARPS, 1, 1]);
    let prepare = match (format, head_dim) {
        (KvFormat::F16, 64) => prefill_attention_64_f16::prepare,
        (KvFormat::F16, _) => prefill_attention_128_f16::prepare,
        (KvFormat::Bf16, 64) => prefill_attention_64_bf16::prepare,
        (KvFormat::Bf16, _) => prefill_attention_128_bf16::prepare,
        (KvFormat::Q8_0, 64) => prefill_attention_64_q8_0::prepare,
        (KvFormat::Q8_0, _) => prefill_attention_128_q8_0::prepare,
    };
    Ok(prepare(
        config, b.queries, b.table, b.keys, b.values, b.out, shape, chunk,
    ))
}
