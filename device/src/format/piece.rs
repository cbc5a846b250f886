//! Blocks as they are multiplied from shared memory: 32 columns at a time, as bytes.
//!
//! A piece is four runs of eight neighbouring columns. Each weight of a run is `a·q + b`, q some bits of a byte: where
//! they are is the same for the whole run, and they are never shifted down. So a type says where its bytes are and what
//! `a` and `b` are; [`Piece::dot`] does the rest.
//!
//! A byte's bits, alone in a word of zeros, are the subnormal float `q·2^(shift − 149)`: one `and` instead of a shift, an
//! `and` and a conversion. Multiplied with an activation that was raised by [`RAISED`] the product is an ordinary float
//! and as exact as any; the sums of a run are brought down again. What does not lie in the lowest 23 bits is shifted there.

use super::Format;
use crate::num::half;
use cuda_std::prelude::*;

/// The exponent by which activations are raised. Those below 2⁴⁷ stay finite; the smallest float that counts is far
/// below any that matters: 2⁻⁶⁴ of a weight's step times 1.
pub const RAISED: i32 = 80;
/// 2^[`RAISED`].
pub const RAISE: f32 = power_of_two(RAISED);

/// `2^e`, e from −126 to 127.
const fn power_of_two(e: i32) -> f32 {
    f32::from_bits(((e + 127) as u32) << 23)
}

/// A place in shared memory, at any byte.
#[derive(Clone, Copy)]
pub struct Cursor {
    /// Begins at a multiple of 16.
    pub memory: Shared<u8>,
    /// Bytes from there.
    pub at: u32,
}

impl Cursor {
    /// `bytes` further.
    #[inline(always)]
    pub fn past(self, bytes: u32) -> Self {
        Self {
            memory: self.memory,
            at: self.at + bytes,
        }
    }

    /// The byte here.
    #[inline(always)]
    pub fn byte(self) -> u32 {
        u32::from(self.memory.load(self.at))
    }

    /// The f16 here, aligned to 2.
    #[inline(always)]
    pub fn half(self) -> f32 {
        half(u32::from(self.memory.load_as::<u16>(self.at)))
    }

    /// The word here, aligned to 4.
    #[inline(always)]
    pub fn word(self) -> u32 {
        self.memory.load_as(self.at)
    }

    /// Four words, aligned to 16.
    #[inline(always)]
    pub fn vector(self) -> [u32; 4] {
        self.memory.load_as::<U32x4>(self.at).0
    }

    /// `N` words, aligned to 4.
    #[inline(always)]
    pub fn words<const N: usize>(self) -> [u32; N] {
        let mut words = [0; N];
        unroll!(for I in 0..N {
            words[I] = self.past(4 * I as u32).word();
        });
        words
    }

    /// `N` words at any byte: put together from aligned ones, which end with the word that the last byte is in.
    #[inline(always)]
    pub fn words_anywhere<const N: usize>(self) -> [u32; N] {
        let odd = self.at & 3;
        let start = Self {
            at: self.at - odd,
            ..self
        };
        let aligned: [u32; N] = start.words();
        // Where nothing is odd the word behind is not there, and not used.
        let behind = if odd == 0 { 0 } else { 4 * N as u32 };
        let (mut words, last) = ([0; N], start.past(behind).word());
        let selector = 0x3210 + 0x1111 * odd;
        unroll!(for I in 0..N {
            let next = if I + 1 < N { aligned[(I + 1) % N] } else { last };
            words[I] = dot::permute_bytes(aligned[I], next, selector);
        });
        words
    }
}

/// 32 columns of a row.
#[derive(Clone, Copy)]
pub struct Piece {
    /// The bytes of each run, first column lowest, or alternately of two.
    pub words: [[u32; 2]; 4],
    /// a and b of each run.
    pub scales: [[f32; 2]; 4],
}

/// A type with blocks of at least 32 columns, as pieces.
pub trait Pieces: Format {
    /// First column of each run, from the first of the piece on.
    const RUNS: [u32; 4] = [0, 8, 16, 24];
    /// Where in each byte the bits of a run begin.
    const SHIFTS: [u32; 4] = [0; 4];
    /// The bits, before they are shifted there.
    const MASK: u32;
    /// Whether the bytes hold nothing else.
    const CLEAN: bool = false;
    /// Runs that follow each other and have scales and places in common: 1, 2 or 4.
    const ALIKE: usize = 4;
    /// Whether columns of two runs alternate in the words: those of runs 0 and 2 in the first two pairs, of 1 and 3 in
    /// the others; four of each in a pair.
    const ALTERNATE: bool = false;

    /// The first column of a piece, from that of its 256 columns on.
    #[inline(always)]
    fn first_column(piece: u32) -> u32 {
        32 * piece
    }

    /// A piece of a row.
    fn load(row: Cursor, piece: u32) -> Piece;

    /// Start of the block that holds a piece, and the piece's number in it.
    #[inline(always)]
    fn block_of(row: Cursor, piece: u32) -> (Cursor, u32) {
        let pieces = Self::BLOCK / 32;
        (row.past(piece / pieces * Self::BYTES), piece % pieces)
    }
}

impl Piece {
    /// The product with raised activations, of which `sums` are the sums of each run, not raised.
    #[inline(always)]
    pub fn dot<F: Pieces>(&self, x: &[[f32; 8]; 4], sums: &[f32; 4]) -> f32 {
        let mut total = 0.0;
        unroll!(for K in 0..4 {
            if K.is_multiple_of(F::ALIKE) {
                total = self.add_alike::<F, K>(x, sums, total);
            }
        });
        total
    }

    /// `total` plus the product of the runs from `FIRST` on that are alike.
    #[inline(always)]
    fn add_alike<F: Pieces, const FIRST: usize>(&self, x: &[[f32; 8]; 4], sums: &[f32; 4], total: f32) -> f32 {
        let (mut run, mut sum, shift) = ([0.0; 3], 0.0, F::SHIFTS[FIRST]);
        unroll!(for I in 0..4 {
            if I < F::ALIKE {
                let k = (FIRST + I) % 4;
                run = add_run::<F>(self.words[k], shift, &activations::<F>(x, k), run);
                sum += sums[if F::ALTERNATE { [0, 2, 1, 3][k] } else { k }];
            }
        });
        let down = 149 - RAISED - shift as i32;
        let mut dot = float::fma(run[0], power_of_two(down), run[1] * power_of_two(down - 8));
        if fits_above::<F>() {
            dot = float::fma(run[2], power_of_two(down - 16), dot);
        }
        let [a, b] = self.scales[FIRST];
        float::fma(a, dot, float::fma(b, sum, total))
    }
}

/// The activations of pair `k` of the words.
#[inline(always)]
fn activations<F: Pieces>(x: &[[f32; 8]; 4], k: usize) -> [f32; 8] {
    if !F::ALTERNATE {
        return x[k];
    }
    let (a, b, at) = (&x[k / 2], &x[2 + k / 2], 4 * (k % 2));
    [
        a[at],
        b[at],
        a[at + 1],
        b[at + 1],
        a[at + 2],
        b[at + 2],
        a[at + 3],
        b[at + 3],
    ]
}

/// Whether byte two of a word is a float where it lies: clean bytes of up to seven bits.
#[inline(always)]
const fn fits_above<F: Pieces>() -> bool {
    F::CLEAN && F::MASK < 128
}

/// Σ q·x of a run more: of what counts as it is, of what is 2⁸ times too much, and 2¹⁶ times.
#[inline(always)]
fn add_run<F: Pieces>(words: [u32; 2], shift: u32, x: &[f32; 8], sums: [f32; 3]) -> [f32; 3] {
    let [mut plain, mut second, mut third] = sums;
    unroll!(for I in 0..2 {
        let (word, byte) = (words[I], F::MASK << shift);
        plain = float::fma(f32::from_bits(word & byte), x[4 * I], plain);
        second = float::fma(f32::from_bits(word & byte << 8), x[4 * I + 1], second);
        if fits_above::<F>() {
            third = float::fma(f32::from_bits(word & byte << 16), x[4 * I + 2], third);
        } else {
            plain = float::fma(f32::from_bits(word >> 16 & byte), x[4 * I + 2], plain);
        }
        if F::CLEAN {
            plain = float::fma(f32::from_bits(word >> 24), x[4 * I + 3], plain);
        } else {
            second = float::fma(f32::from_bits(word >> 16 & byte << 8), x[4 * I + 3], second);
        }
    });
    [plain, second, third]
}

/// The nibbles of four words, low ones in two runs and high ones in the next two, where they lie.
#[inline(always)]
pub(super) fn halves(q: [u32; 4]) -> [[u32; 2]; 4] {
    [[q[0], q[1]], [q[2], q[3]], [q[0], q[1]], [q[2], q[3]]]
}

/// [`halves`], shifted down and with what `fifth` says of each run in bit 4.
#[inline(always)]
pub(super) fn halves_with(q: [u32; 4], fifth: [[u32; 2]; 4]) -> [[u32; 2]; 4] {
    let low = |i: usize| q[i] & 0x0f0f_0f0f;
    let high = |i: usize| q[i] >> 4 & 0x0f0f_0f0f;
    [
        [low(0) | fifth[0][0], low(1) | fifth[0][1]],
        [low(2) | fifth[1][0], low(3) | fifth[1][1]],
        [high(0) | fifth[2][0], high(1) | fifth[2][1]],
        [high(2) | fifth[3][0], high(3) | fifth[3][1]],
    ]
}
