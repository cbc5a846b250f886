//! Rows of floats, as they are in the file, times up to 32 tokens.
//!
//! F16 enters A as it is, times both halves of the activations. BF16 and the upper halves of F32 are `bf16` operands, whose
//! range is that of f32; the activation is then split into two bf16, the first and the second 8 bits of its value. F32 is split
//! alike. So products of F16 have 22 bits of an activation, the others 16 bits, of F32 also 16 of a weight: what decoding
//! keeps of activations for quantised weights.
//!
//! Lane `(g, t)` = `(lane / 4, lane % 4)` loads columns 16h + 4t … +3 of rows g and g + 8: the order of a
//! [`Record`](super::record::Record).

use super::product::{Sums, Tokens, ZERO, add};
use crate::num::half;
use cuda_std::Word;
use cuda_std::prelude::*;

/// Columns that are multiplied together.
const STEP: u32 = 32;
/// The even (`0x5410`) and the odd (`0x7632`) halves of two words.
const HALVES: [u32; 2] = [0x5410, 0x7632];

/// A type of floats.
pub(super) trait FloatRows {
    /// Bytes of a float.
    const BYTES: usize = size_of::<Self::Four>() / 4;
    /// Four of them.
    type Four: Word;

    /// Adds the product of 32 columns: `w[h][r]` are columns 16h + 4t … of row g + 8·r, `x` the activations' halves. All lanes
    /// of the warp call this together.
    fn times(w: [[Self::Four; 2]; 2], x: ([u32; 4], [u32; 4]), c: [f32; 4]) -> [f32; 4];
}

/// The A operands of columns 0…15 and 16…31 from pairs of 16 bits: of rows g and g + 8 columns 0, 1 and 2, 3.
#[inline(always)]
fn operands(w: [[U32x2; 2]; 2]) -> [[u32; 4]; 2] {
    let pick = |U32x2([a, b]): U32x2, which: usize| dot::permute_bytes(a, b, HALVES[which]);
    let of = |[g, u]: [U32x2; 2]| [pick(g, 0), pick(u, 0), pick(g, 1), pick(u, 1)];
    [of(w[0]), of(w[1])]
}

/// The upper halves of two floats, the first below, and what is left of both: the first is cut, so nothing is lost.
#[inline(always)]
fn cut(a: f32, b: f32) -> (u32, [f32; 2]) {
    let rest = |x: f32| x - f32::from_bits(x.to_bits() & 0xffff_0000);
    let pair = dot::permute_bytes(a.to_bits(), b.to_bits(), HALVES[1]);
    (pair, [rest(a), rest(b)])
}

/// The first and the second 8 bits of two floats.
#[inline(always)]
fn twice(a: f32, b: f32) -> [u32; 2] {
    let (first, [a, b]) = cut(a, b);
    [first, cut(a, b).0]
}

/// The activations as two bf16 each.
#[inline(always)]
fn activations((hi, lo): ([u32; 4], [u32; 4])) -> [[u32; 4]; 2] {
    let mut x = [[0; 4]; 2];
    unroll!(for K in 0..4 {
        let whole = |at: u32| half(hi[K] >> at & 0xffff) + half(lo[K] >> at & 0xffff);
        let [first, second] = twice(whole(0), whole(16));
        x[0][K] = first;
        x[1][K] = second;
    });
    x
}

/// Products of 32 columns of bf16.
#[inline(always)]
fn bf16(a: [[u32; 4]; 2], x: [u32; 4], c: [f32; 4]) -> [f32; 4] {
    let c = mma::m16n8k16_bf16(a[0], [x[0], x[1]], c);
    mma::m16n8k16_bf16(a[1], [x[2], x[3]], c)
}

/// Rows of F16.
pub(super) struct F16Rows;

impl FloatRows for F16Rows {
    type Four = U32x2;

    #[inline(always)]
    fn times(w: [[U32x2; 2]; 2], x: ([u32; 4], [u32; 4]), c: [f32; 4]) -> [f32; 4] {
        add(operands(w), x, c)
    }
}

/// Rows of BF16.
pub(super) struct Bf16Rows;

impl FloatRows for Bf16Rows {
    type Four = U32x2;

    #[inline(always)]
    fn times(w: [[U32x2; 2]; 2], x: ([u32; 4], [u32; 4]), c: [f32; 4]) -> [f32; 4] {
        let (a, [first, second]) = (operands(w), activations(x));
        bf16(a, second, bf16(a, first, c))
    }
}

/// Rows of F32.
pub(super) struct F32Rows;

impl FloatRows for F32Rows {
    type Four = U32x4;

    #[inline(always)]
    fn times(w: [[U32x4; 2]; 2], x: ([u32; 4], [u32; 4]), c: [f32; 4]) -> [f32; 4] {
        let mut a = [[[0; 4]; 2]; 2];
        unroll!(for H in 0..2 {
            unroll!(for R in 0..2 {
                let [p, q, r, s] = w[H][R].0.map(f32::from_bits);
                let (even, odd) = (twice(p, r), twice(q, s));
                unroll!(for PART in 0..2 {
                    a[PART][H][R] = even[PART];
                    a[PART][H][2 + R] = odd[PART];
                });
            });
        });
        let [first, second] = activations(x);
        let c = bf16(a[1], first, bf16(a[0], first, c));
        bf16(a[1], second, bf16(a[0], second, c))
    }
}

/// 16 rows of `columns` floats from `rows` on, times up to 32 tokens.
///
/// # Safety
/// The rows are there, aligned to 16 bytes, their columns a positive multiple of 32, and the tokens' rows have as many. All
/// lanes of the warp call this together.
#[inline(always)]
pub(super) unsafe fn float_group<F: FloatRows>(rows: *const u8, columns: u32, tokens: &Tokens, lane: u32) -> Sums {
    let (row_bytes, steps) = (columns as usize * F::BYTES, columns / STEP);
    let mine = rows.wrapping_add((lane >> 2) as usize * row_bytes + 4 * (lane & 3) as usize * F::BYTES);
    let load = |step: u32| {
        let at = |h: usize, r: usize| {
            mine.wrapping_add(8 * r * row_bytes + (STEP as usize * step as usize + 16 * h) * F::BYTES)
        };
        // SAFETY: the caller's.
        let four = |h, r| unsafe { global::load(at(h, r).cast::<F::Four>()) };
        [[four(0, 0), four(0, 1)], [four(1, 0), four(1, 1)]]
    };
    let (mut sums, mut next, mut step) = (ZERO, load(0), 0);
    while step < steps {
        let w = next;
        if step + 1 < steps {
            next = load(step + 1);
        }
        unroll!(for N in 0..4 {
            // SAFETY: the caller's.
            let x = unsafe { tokens.operands(N, step / 8, (step % 8) as usize) };
            sums[N] = F::times(w, x, sums[N]);
        });
        step += 1;
    }
    sums
}
