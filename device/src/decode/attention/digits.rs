//! Scores over a cache of bytes with scales, as decoding makes them: products of whole numbers, in fewer instructions than
//! bytes take to become 16-bit numbers.
//!
//! A query head is a scale times 16-bit numbers, each of two signed digits, `256 · high + low`; row `g` of an A fragment is
//! the high digits of head `g`, row `g + 8` the low ones, and keys are the B operand as memory has them. For the 32 dims of
//! a key's scale both sums are exact, and so is what they make together. A score is within `2⁻¹⁶ · largest |q| · Σ|k|` of
//! that of the query in f32, where a cache of bytes has each key to within `2⁻⁸` of the largest.

use super::lane::{Pairs, Values};
use super::tile::Scores;
use crate::decode::kv::{CHUNK, Corner, KvType};
use cuda_std::prelude::*;

/// The largest number of two digits: 127 · 256 + 127.
const LARGEST: f32 = 32639.0;

/// Adding it rounds a float below 2²² to a whole number, which is then in the last bits.
const ROUND: f32 = 12_582_912.0;

/// The two digits of a number, the higher one first; both are bytes with a sign.
#[inline(always)]
const fn digits(number: u32) -> [u8; 2] {
    [(number.wrapping_add(128) >> 8) as u8, number as u8]
}

/// Query heads as digits in shared memory, a row for each: `[dims / 4][digit][4]` bytes, and its scale.
#[derive(Clone, Copy)]
pub(super) struct Digits<const HD: u32>(Shared<u32>);

impl<const HD: u32> Digits<HD> {
    /// Bytes of a row: odd multiples of 64, so that two of them do not share banks.
    const ROW: u32 = 2 * HD + 64;

    /// The rows in the room that a group of 16-bit queries takes.
    #[inline(always)]
    pub(super) fn new(room: Shared<u16>) -> Self {
        Self(room.cast())
    }

    /// Stores a head, of which the lane has `x`. All lanes of the warp call this together.
    #[inline(always)]
    pub(super) fn set(self, head: u32, pairs: &Pairs<HD>, x: &Values) {
        // As whole numbers, of which a NaN is the largest: it must not be lost.
        let mut largest = 0;
        pairs.each(x, |_, x| largest = largest.max(x.to_bits() & 0x7fff_ffff));
        let largest = f32::from_bits(warp::redux_max(warp::FULL, largest));
        let (inverse, bytes) = (float::rcp_approx(largest) * LARGEST, self.0.cast::<u8>());
        pairs.each(x, |dim, x| {
            let number = float::fma(x, inverse, ROUND).to_bits().wrapping_sub(ROUND.to_bits());
            let ([high, low], at) = (digits(number), head * Self::ROW + dim / 4 * 8 + dim % 4);
            bytes.store(at, high);
            bytes.store(at + 4, low);
        });
        if warp::lane() == 0 {
            self.0
                .cast::<f32>()
                .store(Self::scale_at(head), largest * (1.0 / LARGEST));
        }
    }

    /// Zeroes rows `first .. end`, by all threads of the block.
    #[inline(always)]
    pub(super) fn clear(self, first: u32, end: u32) {
        let mut i = first * (Self::ROW / 4) + thread::thread_idx_x();
        while i < end * (Self::ROW / 4) {
            self.0.store(i, 0);
            i += thread::block_dim_x();
        }
    }

    const fn scale_at(head: u32) -> u32 {
        (head * Self::ROW + 2 * HD) / 4
    }

    /// The lane's scale for each group: that of head `g`.
    #[inline(always)]
    pub(super) fn scales<const GROUPS: usize>(self, at: Corner) -> [f32; GROUPS] {
        let mut scales = [0.0; GROUPS];
        unroll!(for G in 0..GROUPS {
            scales[G] = self.0.cast::<f32>().load(Self::scale_at(8 * G as u32 + at.g));
        });
        scales
    }

    /// The lane's A fragment of a group: dims `32c + 8t …`.
    #[inline(always)]
    fn fragment(self, at: Corner, group: usize, c: u32) -> [u32; 4] {
        let row = (8 * group as u32 + at.g) * Self::ROW;
        self.0.cast::<U32x4>().load(row / 16 + 4 * c + at.t).0
    }
}

/// Adds the products of batch `b` of a chunk's keys to the scores of each group, which lack the query's scale: head `g` and
/// the lane's tokens, in place of row `g`.
#[inline(always)]
pub(super) fn score<T: KvType, const HD: u32, const GROUPS: usize>(
    scores: &mut [Scores; GROUPS],
    rows: Digits<HD>,
    at: Corner,
    keys: &T::Batch,
    b: u32,
) {
    warp::sync();
    unroll!(for C in 0..4 {
        if 4 * b + (C as u32) < HD / 32 {
            let k = T::piece(keys, C);
            let scales = [T::key_scales(keys, C, 0), T::key_scales(keys, C, 1)];
            unroll!(for G in 0..GROUPS {
                let q = rows.fragment(at, G, 4 * b + C as u32);
                unroll!(for J in 0..2 {
                    let sums = mma::m16n8k32_s8(q, [k[2 * J], k[2 * J + 1]], [0; 4]);
                    unroll!(for I in 0..2 {
                        let sum = float::from_i32((sums[I] << 8).wrapping_add(sums[2 + I]));
                        scores[G][J][I] = float::fma(scales[J][I], sum, scores[G][J][I]);
                    });
                });
            });
        }
    });
}

/// As [`softmax::of_lane`](super::softmax::of_lane), with the queries' scale.
#[inline(always)]
pub(super) fn of_lane(scores: &Scores, scale: f32, token: u32, first: u32, end: u32) -> [f32; 4] {
    let [a, b] = scores;
    let mut s = [a[0] * scale, a[1] * scale, b[0] * scale, b[1] * scale];
    // Few chunks have an edge. All lanes go the same way.
    let chunk = token / CHUNK * CHUNK;
    if chunk < first || chunk + CHUNK > end {
        unroll!(for I in 0..4 {
            let at = token + 8 * (I as u32 / 2) + I as u32 % 2;
            if at < first || at >= end {
                s[I] = f32::NEG_INFINITY;
            }
        });
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digits_are_the_number() {
        for number in -(LARGEST as i32)..=LARGEST as i32 {
            let [high, low] = digits(number as u32).map(|digit| i32::from(digit as i8));
            assert_eq!(256 * high + low, number);
        }
    }
}
