//! The two matrix products of attention on tensor cores, for a chunk of 32 tokens of one key/value head.
//!
//! Scores: `S = Q · Kᵀ`, 16 rows of Q by 8 tokens at a time; then `Oᵀ = Vᵀ · Pᵀ`, 16 dims by 8 heads at a time. The
//! operands come from memory in 16-byte loads and nothing moves between lanes:
//!
//! - the order of dims inside a product does not matter as long as Q and K agree, so lane `(g, t)` takes dims
//!   `8t … 8t+7` of every 32: step `s` of two multiplies dims `8t+4s … 8t+4s+3`;
//! - column `n` of score tile `j` is token `8·(n/2) + 2j + (n mod 2)` of the chunk, so that lane `(g, t)` ends with
//!   head `g`'s scores of tokens `8t+2j`, `8t+2j+1` – in order, the 8 tokens whose values it loads;
//! - the score fragments of a tile are then the B operand of the second product as they are.
//!
//! Q has 16 rows. With at most 8 query heads a key head (`WIDE` = false), rows 8…15 hold what f16 rounding lost of rows
//! 0…7, so the scores are those of a 22-bit Q for nothing; with up to 16 heads they are heads 8…15.

use super::share::CHUNK;
use crate::decode::kv::PAGE_TOKENS;
use cuda_std::prelude::*;

/// Up to sixteen 16-byte loads in flight: half of a chunk's keys or values at 256 dims, all of them at up to 128.
pub(crate) type Batch = [U32x4; 16];

/// An empty batch.
pub(crate) const EMPTY: Batch = [U32x4([0; 4]); 16];

/// Batches of a chunk's keys, and of its values.
pub(crate) const fn batches(head_dim: u32) -> u32 {
    head_dim.div_ceil(128)
}

/// Which part of a chunk a lane loads.
#[derive(Clone, Copy)]
pub(crate) struct Corner {
    /// Row of the fragments: lane / 4.
    pub g: u32,
    /// Column pair of the fragments: lane % 4.
    pub t: u32,
}

impl Corner {
    /// The corner of this lane.
    #[inline(always)]
    pub(crate) fn of(lane: u32) -> Self {
        Self {
            g: lane >> 2,
            t: lane & 3,
        }
    }

    /// Loads batch `b` of the keys of the chunk at `slot` (0 or 32) of the page's key head at `head`: score tiles
    /// `4b / batches …`, every 32 dims.
    ///
    /// # Safety
    /// `head` points to a key head of a page, 16-byte aligned.
    #[inline(always)]
    pub(crate) unsafe fn keys<const HD: u32>(self, head: *const u16, slot: u32, b: u32) -> Batch {
        let row = slot + 8 * (self.g >> 1) + (self.g & 1) + 2 * (b * tiles::<HD>());
        let from = (row * HD + 8 * self.t) as usize;
        let mut batch = EMPTY;
        unroll!(for I in 0..16 {
            let (j, c) = (I as u32 / (HD / 32), I as u32 % (HD / 32));
            if j < tiles::<HD>() {
                // SAFETY: token and dims lie in the head.
                batch[I] = unsafe { global::load_stream(head.add(from + (2 * j * HD + 32 * c) as usize).cast()) };
            }
        });
        batch
    }

    /// Loads batch `b` of the values of the chunk at `slot` of the page's value head at `head`: dims `16m + g` and
    /// `16m + g + 8` for eight `m`.
    ///
    /// # Safety
    /// `head` points to a value head of a page, 16-byte aligned.
    #[inline(always)]
    pub(crate) unsafe fn values<const HD: u32>(self, head: *const u16, slot: u32, b: u32) -> Batch {
        let from = ((128 * b + self.g) * PAGE_TOKENS + slot + 8 * self.t) as usize;
        let mut batch = EMPTY;
        unroll!(for I in 0..16 {
            if (I as u32) < HD / 8 {
                // SAFETY: dims and tokens lie in the head.
                batch[I] = unsafe { global::load_stream(head.add(from + 8 * I * PAGE_TOKENS as usize).cast()) };
            }
        });
        batch
    }
}

/// Score tiles of one batch of keys.
const fn tiles<const HD: u32>() -> u32 {
    4 / batches(HD)
}

/// Q in shared memory: 16 rows of f16, each 64 bytes longer than its dims so that rows do not share banks.
#[derive(Clone, Copy)]
pub(crate) struct Queries<const HD: u32>(pub Shared<u16>);

impl<const HD: u32> Queries<HD> {
    const ROW: u32 = HD + 32;

    /// Bytes of shared memory.
    pub(crate) const BYTES: u32 = 16 * Self::ROW * 2;

    /// Stores dim `dim` of row `row`.
    #[inline(always)]
    pub(crate) fn set(self, row: u32, dim: u32, bits: u16) {
        self.0.store(row * Self::ROW + dim, bits);
    }

    /// The lane's A fragments of rows `g` and `g + 8`, dims `32c + 8t …`.
    #[inline(always)]
    fn fragment(self, at: Corner, c: u32) -> (U32x4, U32x4) {
        let from = self.0.cast::<U32x4>();
        let at = |row: u32| (row * Self::ROW + 32 * c + 8 * at.t) / 8;
        let row = lane_row();
        (from.load(at(row)), from.load(at(row + 8)))
    }
}

#[inline(always)]
fn lane_row() -> u32 {
    warp::lane() >> 2
}

/// The four score tiles of a chunk.
pub(crate) type Scores = [[f32; 4]; 4];

/// Adds the products of batch `b` of the keys to the score tiles it covers.
#[inline(always)]
pub(crate) fn score<const HD: u32>(scores: &mut Scores, q: Queries<HD>, at: Corner, keys: &Batch, b: u32) {
    warp::sync();
    unroll!(for C in 0..8 {
        if (C as u32) < HD / 32 {
            let (hi, lo) = q.fragment(at, C as u32);
            unroll!(for J in 0..4 {
                if (J as u32) / tiles::<HD>() == b {
                    let k = keys[(J % tiles::<HD>() as usize * (HD / 32) as usize + C) % 16].0;
                    let (h, l) = (hi.0, lo.0);
                    let s = mma::m16n8k16_f16([h[0], l[0], h[1], l[1]], [k[0], k[1]], scores[J]);
                    scores[J] = mma::m16n8k16_f16([h[2], l[2], h[3], l[3]], [k[2], k[3]], s);
                }
            });
        }
    });
}

/// Outputs of a warp for 8 heads, transposed: `[m]` holds dims `16m + g` (heads 2t, 2t+1) and `16m + g + 8`.
pub(crate) type Output = [[f32; 4]; 16];

/// Adds batch `b` of the values, weighted by the probabilities `p` (8 tokens of head `g`, packed in pairs).
#[inline(always)]
pub(crate) fn mix<const HD: u32>(out: &mut Output, values: &Batch, p: [u32; 4], b: u32) {
    warp::sync();
    unroll!(for M in 0..16 {
        if (M as u32) < HD / 16 && M as u32 / 8 == b {
            let (v, w) = (values[2 * M % 16].0, values[(2 * M + 1) % 16].0);
            let o = mma::m16n8k16_f16([v[0], w[0], v[1], w[1]], [p[0], p[1]], out[M]);
            out[M] = mma::m16n8k16_f16([v[2], w[2], v[3], w[3]], [p[2], p[3]], o);
        }
    });
}

/// Clears the values of tokens that are not there: of the lane's 8, those from `valid` on. What memory holds there may
/// be anything, also a NaN, which no zero weight takes out of a sum.
#[inline(always)]
pub(crate) fn clip(values: &mut Batch, valid: i32) {
    let keep = |word: i32| match valid - 2 * word {
        ..=0 => 0,
        1 => 0xffff,
        _ => u32::MAX,
    };
    let masks = [keep(0), keep(1), keep(2), keep(3)];
    unroll!(for I in 0..16 {
        let v = values[I].0;
        values[I] = U32x4([v[0] & masks[0], v[1] & masks[1], v[2] & masks[2], v[3] & masks[3]]);
    });
}

/// Multiplies the outputs of heads 2t and 2t+1.
#[inline(always)]
pub(crate) fn rescale<const HD: u32>(out: &mut Output, even: f32, odd: f32) {
    unroll!(for M in 0..16 {
        if (M as u32) < HD / 16 {
            let o = out[M];
            out[M] = [o[0] * even, o[1] * odd, o[2] * even, o[3] * odd];
        }
    });
}

/// The first token of chunk `chunk` within its page.
#[inline(always)]
pub(crate) const fn slot(chunk: u32) -> u32 {
    chunk * CHUNK % PAGE_TOKENS
}
