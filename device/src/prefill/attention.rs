//! Causal attention of a prompt's tokens over the paged cache, in which they are already.
//!
//! `out[i][h] = Σ_j softmax_j(q_ih · K_j) V_j` for j up to token i's own position; queries as
//! [`append`](super::append) leaves them (scaled, in units of log₂ e, hi and lo), the cache as
//! [`kv`] says, `out` `[token][head][dim]` f32.
//!
//! **Bytes**: the queries once; the cache of a key head once for every 16 rows, from L2. **Shape of the work**: all query
//! heads of a key head see the same cache, so a row is a token and one of its heads; a warp takes 16 rows
//! (2 tokens × 8 heads in most models) through the cache in chunks of 32 tokens, by the tensor-core scheme of the
//! [decode kernel](crate::decode::attention). Warps share nothing: no barrier, no shared memory.
//!
//! **Launch**: [`attention`].

use super::append::Chunk;
#[cfg(not(target_arch = "nvptx64"))]
use super::append::HeadBuffers;
use crate::decode::attention::softmax::{self, Running};
use crate::decode::attention::tile::{self, Corner, Output, Scores};
use crate::decode::attention::{AttentionShape, CHUNK};
use crate::decode::kv;
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 4;
/// Rows of a warp.
const ROWS: u32 = 16;

/// Where the launch reads and writes.
struct Arguments {
    queries: *const u16,
    table: *const u32,
    keys: *mut u16,
    values: *mut u16,
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

    /// Index of the row's first dim among queries and outputs.
    #[inline(always)]
    fn index(&self, a: &Arguments, row: Row) -> usize {
        (row.token as usize * a.shape.heads as usize + row.head as usize) * HD as usize
    }
}

/// The lane's A fragments of rows g and g + 8, hi and lo, dims `32c + 8t …`; `rows` point to dims 8t.
///
/// # Safety
/// The rows' queries are readable.
#[inline(always)]
unsafe fn fragment(rows: [*const u16; 2], low: usize, c: u32) -> [[u32; 4]; 4] {
    let load = |r: usize, at: usize| {
        // SAFETY: the caller's.
        unsafe { global::load(rows[r].add(32 * c as usize + at).cast::<U32x4>()).0 }
    };
    [load(0, 0), load(1, 0), load(0, low), load(1, low)]
}

/// The scores of the warp's 16 rows with 32 keys.
///
/// # Safety
/// The rows' queries are readable. All lanes of the warp call this together.
#[inline(always)]
unsafe fn score<const HD: u32>(rows: [*const u16; 2], low: usize, keys: &tile::Batch) -> Scores {
    let mut scores = [[0.0; 4]; 4];
    unroll!(for C in 0..4 {
        if (C as u32) < HD / 32 {
            // SAFETY: the caller's.
            let [g, h, gl, hl] = unsafe { fragment(rows, low, C as u32) };
            unroll!(for J in 0..4 {
                let k = keys[(J * (HD / 32) as usize + C) % 16].0;
                let s = mma::m16n8k16_f16([g[0], h[0], g[1], h[1]], [k[0], k[1]], scores[J]);
                let s = mma::m16n8k16_f16([g[2], h[2], g[3], h[3]], [k[2], k[3]], s);
                let s = mma::m16n8k16_f16([gl[0], hl[0], gl[1], hl[1]], [k[0], k[1]], s);
                scores[J] = mma::m16n8k16_f16([gl[2], hl[2], gl[3], hl[3]], [k[2], k[3]], s);
            });
        }
    });
    scores
}

/// The running attention of a warp's rows: 0 … 7 and 8 … 15.
struct Attention {
    out: [Output; 2],
    running: [Running; 2],
}

/// The warp's rows over all tokens that one of them sees.
///
/// # Safety
/// The arguments of a launch that [`attention`] prepared.
#[inline(always)]
unsafe fn attend<const HD: u32>(a: &Arguments) {
    let place = Place::<HD>::new(a);
    if place.first >= place.rows {
        return;
    }
    let at = place.at;
    let (even, odd) = (place.row(at.g), place.row(at.g + 8));
    let low = a.chunk.count as usize * (a.shape.heads * HD) as usize;
    let query = |row: Row| a.queries.wrapping_add(place.index(a, row) + 8 * at.t as usize);
    let queries = [query(even), query(odd)];
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
        // SAFETY: the chunk begins with a token that is in the cache, so its page is in the table.
        unsafe {
            let page = global::load(a.table.add((token / kv::PAGE_TOKENS) as usize));
            let base = kv::head_base(page, a.shape.page_stride, place.kv_head, HD);
            let slot = tile::slot(token / CHUNK);
            let keys = at.keys::<HD>(a.keys.add(base), slot, 0);
            let mut values = at.values::<HD>(a.values.add(base), slot, 0);
            let scores = score::<HD>(queries, low, &keys);
            let mine = token + 8 * at.t;
            if token + CHUNK > written {
                tile::clip(&mut values, written as i32 - mine as i32);
            }
            state.add::<HD>(at, &scores, &values, mine, seen);
        }
        token += CHUNK;
    }
    // SAFETY: the output has the rows.
    unsafe { state.store(a, &place) }
}

impl Attention {
    /// Adds 32 tokens, of which the lane's 8 begin with `token`; row g sees those below `seen[0]`, row g + 8 those below
    /// `seen[1]`. The first tokens of the cache come first and every row sees them, so that there is a maximum.
    #[inline(always)]
    fn add<const HD: u32>(&mut self, at: Corner, scores: &Scores, values: &tile::Batch, token: u32, seen: [u32; 2]) {
        unroll!(for H in 0..2 {
            let scores = softmax::of_lane::<true>(scores, H, token, 0, seen[H]);
            let (weights, before) = self.running[H].add(scores);
            let (even, odd) = softmax::for_outputs(at, before);
            tile::rescale::<HD>(&mut self.out[H], even, odd);
            tile::mix::<HD>(&mut self.out[H], values, weights, 0);
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
    ($($(#[$doc:meta])* $name:ident = $dims:literal;)*) => {$(
        $(#[$doc])*
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
            keys: *mut u16,
            values: *mut u16,
            out: *mut f32,
            shape: AttentionShape,
            chunk: Chunk,
        ) {
            pdl::wait();
            let a = Arguments { queries, table, keys, values, out, shape, chunk };
            // SAFETY: passed on.
            unsafe { attend::<$dims>(&a) }
        }
    )*};
}

kernels! {
    /// Causal attention of a prompt, heads of 64 dims.
    prefill_attention_64 = 64;
    /// Causal attention of a prompt, heads of 128 dims.
    prefill_attention_128 = 128;
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
    head_dim: u32,
    chunk: Chunk,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    super::append::check("prefill_attention", &shape, head_dim, chunk)?;
    let rows = chunk.count * (shape.heads / shape.kv_heads);
    let grid = [rows.div_ceil(ROWS * WARPS), shape.kv_heads, 1];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * WARPS, 1, 1]);
    let prepare = if head_dim == 64 {
        prefill_attention_64::prepare
    } else {
        prefill_attention_128::prepare
    };
    Ok(prepare(
        config, b.queries, b.table, b.keys, b.values, b.out, shape, chunk,
    ))
}
