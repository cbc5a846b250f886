//! Tiles of weights times up to 32 tokens, on half-precision tensor cores without rounding a weight.
//!
//! A warp multiplies 16 rows × 256 columns by the records of up to `8·NT` tokens, `mma.m16n8k16`, weights as A. What
//! enters A are integers that f16 holds exactly: of Q4_K `scale·q` (at most 63·15; of Q5_K 63·31), of Q6_K `q − 32`. The activation is
//! B, its hi and its lo halves one after the other onto the same accumulators; both come in 16-byte loads
//! ([`Record`](super::record)). Minimums of Q4_K are one more product a tile: with the sums of the eight sub-blocks.
//! Scales of the block (and of Q6_K's 16 columns) are f32 factors of exact integer-weighted sums.
//!
//! Lane `(g, t)` = `(lane / 4, lane % 4)` loads the records of tokens 8n + g and ends with rows g, g + 8 of tokens
//! 8n + 2t, 8n + 2t + 1.

use super::record::Record;
use crate::tile::{KTile, Q6KTile, Tile};
use cuda_std::prelude::*;

/// Tokens that a warp takes at a time.
pub const TOKENS: u32 = 32;

/// A lane's sums: of token pair n rows g (two tokens), then rows g + 8.
pub(super) type Sums = [[f32; 4]; 4];

/// No sums yet.
pub(super) const ZERO: Sums = [[0.0; 4]; 4];

/// The records of a warp's tokens.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    rows: [*const u8; 4],
    t: u32,
}

impl Tokens {
    /// The rows that `row` gives for tokens 8n + g of the warp, in records of `row_bytes` a row.
    #[inline(always)]
    pub(super) fn new(records: *const u8, row_bytes: usize, lane: u32, row: impl Fn(u32) -> u32) -> Self {
        let at = |n: u32| records.wrapping_add(row(8 * n + (lane >> 2)) as usize * row_bytes);
        Self {
            rows: [at(0), at(1), at(2), at(3)],
            t: lane & 3,
        }
    }

    /// Hi and lo of sub-block `j` of record `block`: the lane's B operands of both halves.
    #[inline(always)]
    pub(super) unsafe fn operands(&self, n: usize, block: u32, j: usize) -> ([u32; 4], [u32; 4]) {
        let at = self.rows[n].wrapping_add(block as usize * Record::BYTES + 64 * j + 16 * self.t as usize);
        // SAFETY: the caller's: the row has the record.
        unsafe {
            (
                global::load(at.cast::<U32x4>()).0,
                global::load(at.add(Record::LOW).cast::<U32x4>()).0,
            )
        }
    }

    /// The sums of the lane's sub-blocks: hi, lo.
    #[inline(always)]
    pub(super) unsafe fn sums(&self, n: usize, block: u32) -> [u32; 2] {
        let at = block as usize * Record::BYTES + Record::SUMS + 8 * self.t as usize;
        // SAFETY: the caller's: the row has the record.
        unsafe { global::load(self.rows[n].wrapping_add(at).cast::<U32x2>()).0 }
    }
}

/// A tile that multiplies prompts.
pub(super) trait Product: Tile {
    /// Adds the tile times record `block` of the tokens.
    ///
    /// # Safety
    /// The tokens' rows have the record. All lanes of the warp call this together.
    unsafe fn times<const NT: usize>(&self, tokens: &Tokens, block: u32, sums: &mut Sums, lane: u32);
}

/// 1024 in both halves of a pair; f16 numbers from there on count in ones, so the bits of a small integer added to
/// these are its sum with 1024.
pub(super) const THOUSAND: u32 = 0x6400_6400;

/// Two integers below 1024 (in the halves of a word) as f16.
#[inline(always)]
pub(super) fn whole(pair: u32) -> half2::F16x2 {
    half2::F16x2(pair | THOUSAND).sub(half2::F16x2(THOUSAND))
}

/// Both halves' products of 32 columns: A operands of columns 0…15 and 16…31 of a sub-block.
#[inline(always)]
pub(super) fn add(a: [[u32; 4]; 2], (hi, lo): ([u32; 4], [u32; 4]), c: [f32; 4]) -> [f32; 4] {
    let c = mma::m16n8k16_f16(a[0], [hi[0], hi[1]], c);
    let c = mma::m16n8k16_f16(a[1], [hi[2], hi[3]], c);
    let c = mma::m16n8k16_f16(a[0], [lo[0], lo[1]], c);
    mma::m16n8k16_f16(a[1], [lo[2], lo[3]], c)
}

impl<const FIVE: bool> Product for KTile<FIVE> {
    #[inline(always)]
    unsafe fn times<const NT: usize>(&self, tokens: &Tokens, block: u32, sums: &mut Sums, lane: u32) {
        let scales = self.scales(lane);
        let mut headers = [[0; 4]; 2];
        unroll!(for P in 0..4 {
            headers[0][P] = warp::shuffle(self.headers[0], (lane & 28) | P as u32);
            headers[1][P] = warp::shuffle(self.headers[1], (lane & 28) | P as u32);
        });
        let mut dots = ZERO;
        unroll!(for J in 0..8 {
            let scale = |r: usize| whole(((headers[r][J % 4] >> (6 * (J as u32 / 4))) & 63) * 0x1_0001);
            let (s, u) = (scale(0), scale(1));
            let words = self.nibbles.quants[J / 2];
            let row = |k: usize| Row {
                quants: words[k],
                shift: 4 * (J as u32 % 2),
                fifth: if FIVE { self.nibbles.fifth[k] >> J } else { 0 },
            };
            let half = |h: usize| k_operand(row(2 * h), row(2 * h + 1), s, u);
            let a = [half(0), half(1)];
            unroll!(for N in 0..4 {
                if N < NT {
                    // SAFETY: the caller's.
                    dots[N] = add(a, unsafe { tokens.operands(N, block, J) }, dots[N]);
                }
            });
        });
        let min = |r: usize| whole((self.headers[r] >> 12 & 63) | (self.headers[r] >> 18 & 63) << 16).0;
        let (m, k) = (min(0), min(1));
        unroll!(for N in 0..4 {
            if N < NT {
                // SAFETY: the caller's.
                let x = unsafe { tokens.sums(N, block) };
                let mins = mma::m16n8k16_f16([m, k, m, k], x, [0.0; 4]);
                unroll!(for I in 0..4 {
                    let (d, dmin) = (scales.d[I / 2], scales.dmin[I / 2]);
                    let part = float::fma(dmin * -32.0, mins[I], sums[N][I]);
                    sums[N][I] = float::fma(d, dots[N][I], part);
                });
            }
        });
    }
}

/// Four columns of a row: nibbles from bit `shift` of each byte on, fifth bits in the bytes' lowest bits.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub quants: u32,
    pub shift: u32,
    pub fifth: u32,
}

impl Row {
    /// 1024 more than the values of bytes 0 and 2 (`at` is 0) or 1 and 3 (8), as f16.
    #[inline(always)]
    pub(super) fn raised(self, at: u32) -> half2::F16x2 {
        let bits = (self.quants >> (self.shift + at)) & 0x000f_000f | ((self.fifth >> at) & 0x0001_0001) << 4;
        half2::F16x2(bits | THOUSAND)
    }
}

/// The A operand of 16 columns of rows g and g + 8, times the rows' scales.
#[inline(always)]
fn k_operand(g: Row, h: Row, s: half2::F16x2, u: half2::F16x2) -> [u32; 4] {
    // (1024 + q)·s − 1024·s, rounded once and exact.
    let offset = half2::F16x2(0xe400_e400);
    let (so, uo) = (s.mul(offset), u.mul(offset));
    [
        g.raised(0).fma(s, so).0,
        h.raised(0).fma(u, uo).0,
        g.raised(8).fma(s, so).0,
        h.raised(8).fma(u, uo).0,
    ]
}

impl Product for Q6KTile {
    #[inline(always)]
    unsafe fn times<const NT: usize>(&self, tokens: &Tokens, block: u32, sums: &mut Sums, lane: u32) {
        let d = self.scales(lane);
        let mut scales = [[0; 4]; 2];
        unroll!(for P in 0..4 {
            scales[0][P] = warp::shuffle(self.scales[0], (lane & 28) | P as u32);
            scales[1][P] = warp::shuffle(self.scales[1], (lane & 28) | P as u32);
        });
        let mut dots = ZERO;
        unroll!(for J in 0..8 {
            // Sub-blocks of 16 columns 2J and 2J + 1 are column pair J % 4 of accumulators 2·(J / 4) and the next.
            let a = [self.q6k_operand::<J, 0>(), self.q6k_operand::<J, 1>()];
            let scale = |r: usize, b: usize| {
                let byte = 2 * (J as u32 / 4) + b as u32;
                ((scales[r][J % 4] << (24 - 8 * byte)) as i32 >> 24) as f32
            };
            let scale = [[scale(0, 0), scale(1, 0)], [scale(0, 1), scale(1, 1)]];
            unroll!(for N in 0..4 {
                if N < NT {
                    // SAFETY: the caller's.
                    let (hi, lo) = unsafe { tokens.operands(N, block, J) };
                    unroll!(for B in 0..2 {
                        let c = mma::m16n8k16_f16(a[B], [hi[2 * B], hi[2 * B + 1]], [0.0; 4]);
                        let c = mma::m16n8k16_f16(a[B], [lo[2 * B], lo[2 * B + 1]], c);
                        unroll!(for I in 0..4 {
                            dots[N][I] = float::fma(scale[B][I / 2], c[I], dots[N][I]);
                        });
                    });
                }
            });
        });
        unroll!(for N in 0..4 {
            if N < NT {
                unroll!(for I in 0..4 {
                    sums[N][I] = float::fma(d[I / 2], dots[N][I], sums[N][I]);
                });
            }
        });
    }
}

impl Q6KTile {
    /// The A operand q − 32 of sub-block 2J + B of 16 columns.
    #[inline(always)]
    fn q6k_operand<const J: usize, const B: usize>(&self) -> [u32; 4] {
        let (a, pair) = (2 * (J / 4) + B, J % 4);
        let (u, half) = (pair / 2, pair % 2);
        let two = |r: usize, at: u32| {
            let six = self.four(a, u, 2 * half + r) >> (2 + at) & 0x003f_003f;
            // The top bit is kept inverted: turned back, this is 1024 + q.
            half2::F16x2(six ^ 0x6420_6420).sub(half2::F16x2(0x6420_6420)).0
        };
        [two(0, 0), two(1, 0), two(0, 8), two(1, 8)]
    }
}

/// A row group of `blocks` tiles times the tokens.
///
/// # Safety
/// `tiles` points to as many tiles, and the tokens' rows have as many records. All lanes of the warp call this together.
#[inline(always)]
pub(super) unsafe fn row_group<T: Product, const NT: usize>(
    tiles: *const u8,
    blocks: u32,
    tokens: &Tokens,
    lane: u32,
) -> Sums {
    let mut sums = ZERO;
    // SAFETY: the caller's.
    unsafe {
        let mut next = T::load(tiles, lane);
        let mut block = 0;
        while block < blocks {
            let tile = next;
            if block + 1 < blocks {
                next = T::load(tiles.add((block as usize + 1) * T::BYTES), lane);
            }
            tile.times::<NT>(tokens, block, &mut sums, lane);
            block += 1;
        }
    }
    sums
}

/// The token at place `place`: `order` tells, or null, the place itself.
///
/// # Safety
/// The order has the place.
#[inline(always)]
pub(super) unsafe fn token_at(order: *const u32, place: u32) -> u32 {
    if order.is_null() {
        return place;
    }
    // SAFETY: the caller's.
    unsafe { global::load(order.add(place as usize)) }
}

/// Calls `f(token, row, sum)` for the lane's sums of tokens below `count`; rows are 0 … 15.
#[inline(always)]
pub(super) fn each(sums: &Sums, count: u32, lane: u32, mut f: impl FnMut(u32, u32, f32)) {
    let (g, t) = (lane >> 2, lane & 3);
    unroll!(for N in 0..4 {
        unroll!(for I in 0..4 {
            let token = 8 * N as u32 + 2 * t + I as u32 % 2;
            if token < count {
                f(token, g + 8 * (I as u32 / 2), sums[N][I]);
            }
        });
    });
}

/// Runs `$body` with `$tiles` as the number of 8-token groups that `$count` tokens need: 1, 2 or 4.
macro_rules! with_tokens {
    ($count:expr, $tiles:ident => $body:expr) => {
        if $count <= 8 {
            const $tiles: usize = 1;
            $body
        } else if $count <= 16 {
            const $tiles: usize = 2;
            $body
        } else {
            const $tiles: usize = 4;
            $body
        }
    };
}
pub(super) use with_tokens;
