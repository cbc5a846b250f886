//! The tile products of IQ4_NL, IQ4_XS and MXFP4: four-bit codes of signed bytes, a scale for each 32 columns.
//!
//! Two `prmt` look up four codes: the table of even steps and that of odd ones, each with the code's top three bits as
//! index. The bit that chooses between them is the top one of a selector, where it means "the sign of that byte, eight
//! times": so the table that is not meant gives 0 or −1 for all bits, which an exclusive or takes in its stride. That asks
//! for tables in which an even step and the next odd one have the same sign; FP4 has it once it is raised by 12, which
//! the sums of the activations take off again.

use super::small::scaled;
use super::{Activation, Source, Tile, only, wide};
use crate::layout;
use crate::num::half;
use cuda_std::prelude::*;
use sparkinfer_gguf::blocks::{FP4_TABLE, IQ4_TABLE};

/// What FP4 steps are raised by.
pub(super) const FP4_RAISED: i32 = 12;
/// The steps of IQ4.
const IQ4: Book = Book::new(&IQ4_TABLE, 0);
/// Twice the steps of FP4, raised.
pub(super) const FP4: Book = Book::new(&FP4_TABLE, FP4_RAISED as i8);

/// Two tables of eight signed bytes, as `prmt` takes them.
#[derive(Clone, Copy)]
pub(super) struct Book {
    even: [u32; 2],
    odd: [u32; 2],
}

impl Book {
    const fn new(steps: &[i8; 16], raised: i8) -> Self {
        let (mut book, mut i) = (
            Self {
                even: [0; 2],
                odd: [0; 2],
            },
            0,
        );
        while i < 8 {
            let (even, odd) = (steps[2 * i] + raised, steps[2 * i + 1] + raised);
            assert!(
                (even < 0) == (odd < 0),
                "an even step and the next have different signs"
            );
            // The sign of the even byte turns the odd one over: it lies here turned over.
            let odd = if even < 0 { !odd } else { odd };
            book.even[i / 4] |= (even as u8 as u32) << (8 * (i % 4));
            book.odd[i / 4] |= (odd as u8 as u32) << (8 * (i % 4));
            i += 1;
        }
        book
    }

    /// The book with its first words in registers: `prmt` takes one constant, and the assembler would bring in the other
    /// anew for each look-up, unless it depends on what only a thread knows: that blocks have one layer.
    #[inline(always)]
    fn resident(self) -> Self {
        let zero = thread::thread_idx_z();
        Self {
            even: [self.even[0] | zero, self.even[1]],
            odd: [self.odd[0] | zero, self.odd[1]],
        }
    }

    /// The steps of four codes in the low half of `codes`; `turned` has their top bits inverted.
    #[inline(always)]
    fn look_up(self, codes: u32, turned: u32) -> u32 {
        dot::permute_bytes(self.even[0], self.even[1], codes) ^ dot::permute_bytes(self.odd[0], self.odd[1], turned)
    }
}

/// A lane's codes: see [`layout::Iq4NlTile`].
#[derive(Clone, Copy)]
pub(super) struct Codes([[u32; 4]; 4]);

impl Codes {
    pub const ZERO: Self = Self([[0; 4]; 4]);

    /// Loads four vectors from the start of a tile.
    ///
    /// # Safety
    /// `tile` is a whole tile, aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the tile.
        let vector = |j: usize| unsafe { tile.vector(512 * j, lane) };
        Self([vector(0), vector(1), vector(2), vector(3)])
    }

    /// The A operands in the lower and upper halves of vector `j`.
    #[inline(always)]
    pub fn operands(&self, book: Book, j: usize) -> [[u32; 4]; 2] {
        let (book, mut both) = (book.resident(), [[0; 4]; 2]);
        unroll!(for K in 0..4 {
            let codes = self.0[j][K];
            let turned = codes ^ 0x8888_8888;
            both[0][K] = book.look_up(codes, turned);
            both[1][K] = book.look_up(codes >> 16, turned >> 16);
        });
        both
    }

    /// Σ step·x of the lane's sub-blocks t and t + 4: rows g and g + 8 of each. All lanes of the warp call this together.
    #[inline(always)]
    fn sums(&self, book: Book, x: &Activation, lane: u32) -> [[i32; 2]; 2] {
        let (first, second) = ([x.words[0], x.words[1]], [x.words[2], x.words[3]]);
        let [a, b] = self.operands(book, 0);
        let c = mma::m16n8k32_s8(
            b,
            only(lane, 1, first),
            mma::m16n8k32_s8(a, only(lane, 0, first), [0; 4]),
        );
        let [a, b] = self.operands(book, 1);
        let c = mma::m16n8k32_s8(b, only(lane, 3, first), mma::m16n8k32_s8(a, only(lane, 2, first), c));
        let [a, b] = self.operands(book, 2);
        let e = mma::m16n8k32_s8(
            b,
            only(lane, 1, second),
            mma::m16n8k32_s8(a, only(lane, 0, second), [0; 4]),
        );
        let [a, b] = self.operands(book, 3);
        let e = mma::m16n8k32_s8(b, only(lane, 3, second), mma::m16n8k32_s8(a, only(lane, 2, second), e));
        [wide(c), wide(e)]
    }
}

/// A lane's share of an IQ4_NL tile: `w = d·step`.
#[derive(Clone, Copy)]
pub struct Iq4NlTile {
    codes: Codes,
    scales: [u32; 2],
}

impl Tile for Iq4NlTile {
    const BYTES: usize = layout::Iq4NlTile::TILE_BYTES;
    type Scales = ();

    #[inline(always)]
    fn zero() -> Self {
        Self {
            codes: Codes::ZERO,
            scales: [0; 2],
        }
    }

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            Self {
                codes: Codes::load(tile, lane),
                scales: tile.pair(layout::Iq4NlTile::SCALES, lane),
            }
        }
    }

    #[inline(always)]
    fn scales(&self, _lane: u32) {}

    #[inline(always)]
    fn multiply(&self, (): (), x: &Activation, lane: u32) -> [f32; 2] {
        let [c, e] = self.codes.sums(IQ4, x, lane);
        [
            x.scale * scaled(self.scales[0], [c[0], e[0]]),
            x.scale * scaled(self.scales[1], [c[1], e[1]]),
        ]
    }
}

/// 2^(e − 128): the float whose exponent is e − 1, or one of the two that lie below all such.
#[inline(always)]
pub(crate) fn power_of_two(e: u32) -> f32 {
    let small = u32::from(e < 2).wrapping_neg();
    f32::from_bits((0x0020_0000 << (e & 1)) & small | (e.wrapping_sub(1) << 23) & !small)
}

/// A lane's share of an MXFP4 tile: `w = 2^(e − 128)·step`.
#[derive(Clone, Copy)]
pub struct Mxfp4Tile {
    codes: Codes,
    exponents: u32,
}

impl Mxfp4Tile {
    /// Row `r` of the lane: `v` are the sums of its two sub-blocks.
    #[inline(always)]
    fn row(&self, r: u32, v: [i32; 2], x: &Activation) -> f32 {
        let d = |k: u32| power_of_two(self.exponents >> (16 * r + 8 * k) & 255);
        let sum = |k: usize| (v[k] - FP4_RAISED * x.sums[k]) as f32;
        float::fma(d(0) * x.scale, sum(0), d(1) * x.scale * sum(1))
    }
}

impl Tile for Mxfp4Tile {
    const BYTES: usize = layout::Mxfp4Tile::TILE_BYTES;
    type Scales = ();

    #[inline(always)]
    fn zero() -> Self {
        Self {
            codes: Codes::ZERO,
            exponents: 0,
        }
    }

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            Self {
                codes: Codes::load(tile, lane),
                exponents: tile.read(layout::Mxfp4Tile::EXPONENTS + 4 * lane as usize),
            }
        }
    }

    #[inline(always)]
    fn scales(&self, _lane: u32) {}

    #[inline(always)]
    fn multiply(&self, (): (), x: &Activation, lane: u32) -> [f32; 2] {
        let [c, e] = self.codes.sums(FP4, x, lane);
        [self.row(0, [c[0], e[0]], x), self.row(1, [c[1], e[1]], x)]
    }
}

/// A lane's share of an IQ4_XS tile: `w = d·(scale − 32)·step`.
#[derive(Clone, Copy)]
pub struct Iq4XsTile {
    codes: Codes,
    header: u32,
}

impl Iq4XsTile {
    /// Row `r` of the lane: `v` are the sums of its two sub-blocks, which a scale could lead past 31 bits.
    #[inline(always)]
    fn row(&self, r: u32, v: [i32; 2]) -> f32 {
        let scale = |k: u32| ((self.header >> (12 * r + 6 * k) & 63) as i32 - 32) as f32;
        float::fma(scale(0), v[0] as f32, scale(1) * v[1] as f32)
    }
}

impl Tile for Iq4XsTile {
    const BYTES: usize = layout::Iq4XsTile::TILE_BYTES;
    type Scales = [f32; 2];

    #[inline(always)]
    fn zero() -> Self {
        Self {
            codes: Codes::ZERO,
            header: 0,
        }
    }

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            Self {
                codes: Codes::load(tile, lane),
                header: tile.read(layout::Iq4XsTile::HEADERS + 4 * lane as usize),
            }
        }
    }

    #[inline(always)]
    fn scales(&self, lane: u32) -> [f32; 2] {
        let byte = |t: u32| warp::shuffle(self.header >> 24, (lane & 28) | t);
        let (a, b, c, d) = (byte(0), byte(1), byte(2), byte(3));
        [half(a | b << 8), half(c | d << 8)]
    }

    #[inline(always)]
    fn multiply(&self, d: [f32; 2], x: &Activation, lane: u32) -> [f32; 2] {
        let [c, e] = self.codes.sums(IQ4, x, lane);
        [
            d[0] * x.scale * self.row(0, [c[0], e[0]]),
            d[1] * x.scale * self.row(1, [c[1], e[1]]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkinfer_gguf::blocks::e8m0_half;

    #[test]
    fn every_code_in_every_place_has_its_step() {
        for (book, steps, raised) in [(IQ4, IQ4_TABLE, 0), (FP4, FP4_TABLE, FP4_RAISED as i8)] {
            for (code, step) in (0u32..).zip(steps) {
                let turned = code >> 1 | (code & 1) << 3;
                for place in 0..4 {
                    // The neighbours have the other extreme.
                    let codes = (0x7777 & !(15 << (4 * place))) | turned << (4 * place);
                    let found = book.look_up(codes, codes ^ 0x8888).to_le_bytes()[place as usize];
                    assert_eq!(found as i8, step + raised, "code {code}, place {place}");
                }
            }
        }
    }

    #[test]
    fn every_exponent_has_its_power() {
        for e in 0..=255u8 {
            assert_eq!(power_of_two(e.into()), e8m0_half(e), "exponent {e}");
        }
    }
}
