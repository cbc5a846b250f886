//! The tile products of IQ4_NL, IQ4_XS and MXFP4: four-bit codes of signed bytes, a scale for each 32 columns.
//!
//! The top bit of a code is its sign, set or clear, and of a `prmt` selector it means "the sign of that byte, eight
//! times". So one `prmt` with the magnitudes of the positive steps looks four codes up and gives 0 for negative ones, and one
//! with those of the negative steps, whose selectors have the top bits turned over, the other way round. The two go into
//! products of their own, and the few sums are subtracted.

use super::small::scaled;
use super::{Activation, Source, Tile, difference, only};
use crate::layout;
use crate::num::half;
use cuda_std::prelude::*;
use sparkinfer_gguf::blocks::{FP4_TABLE, IQ4_TABLE};

/// The steps of IQ4.
pub(crate) const IQ4: Book = Book::new(&IQ4_TABLE);
/// Twice the steps of FP4.
pub(crate) const FP4: Book = Book::new(&FP4_TABLE);

/// The magnitudes of the positive and of the negative steps, as `prmt` takes them.
#[derive(Clone, Copy)]
pub(crate) struct Book {
    magnitudes: [[u32; 2]; 2],
    /// What clears the top bits of the positive, of the negative codes.
    signs: [u32; 2],
}

impl Book {
    const fn new(steps: &[i8; 16]) -> Self {
        let top_is_negative = steps[15] < 0;
        let (mut magnitudes, mut i) = ([[0; 2]; 2], 0);
        while i < 16 {
            let negative = (i >= 8) == top_is_negative;
            assert!(
                steps[i] == 0 || (steps[i] < 0) == negative,
                "the top bit is not the sign"
            );
            magnitudes[negative as usize][i / 4 % 2] |= (steps[i].unsigned_abs() as u32) << (8 * (i % 4));
            i += 1;
        }
        Self {
            magnitudes,
            signs: if top_is_negative {
                [0, 0x8888_8888]
            } else {
                [0x8888_8888, 0]
            },
        }
    }

    /// The book with its first words in registers: `prmt` takes one constant, and the assembler would bring in the other
    /// anew for each look-up, unless it depends on what only a thread knows: that blocks have one layer.
    #[inline(always)]
    fn resident(mut self) -> Self {
        let zero = thread::thread_idx_z();
        self.magnitudes[0][0] ^= zero;
        self.magnitudes[1][0] ^= zero;
        self
    }

    /// The magnitudes of four codes in the low half of `selectors`, 0 for those whose top bit is set.
    #[inline(always)]
    fn look_up(self, sign: usize, selectors: u32) -> u32 {
        let [low, high] = self.magnitudes[sign];
        dot::permute_bytes(low, high, selectors)
    }
}

/// A lane's codes: see [`layout::Iq4NlTile`].
#[derive(Clone, Copy)]
pub(crate) struct Codes([[u32; 4]; 4]);

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

    /// The A operands of vector `j`: of its lower and upper halves the positive and the negative steps' magnitudes.
    #[inline(always)]
    pub fn operands(&self, book: Book, j: usize) -> [[[u32; 4]; 2]; 2] {
        let (book, mut all) = (book.resident(), [[[0; 4]; 2]; 2]);
        unroll!(for K in 0..4 {
            unroll!(for SIGN in 0..2 {
                let selectors = self.0[j][K] ^ book.signs[SIGN];
                all[0][SIGN][K] = book.look_up(SIGN, selectors);
                all[1][SIGN][K] = book.look_up(SIGN, selectors >> 16);
            });
        });
        all
    }

    /// Σ step·x of the lane's sub-block of vectors `FIRST` and FIRST + 1: rows g and g + 8.
    #[inline(always)]
    fn sums_of<const FIRST: usize>(&self, book: Book, x: [u32; 2], lane: u32) -> [i32; 2] {
        let mut c = [[0; 4]; 2];
        unroll!(for J in 0..2 {
            let operands = self.operands(book, FIRST + J);
            unroll!(for HALF in 0..2 {
                let b = only(lane, (2 * J + HALF) as u32, x);
                c = [
                    mma::m16n8k32_s8(operands[HALF][0], b, c[0]),
                    mma::m16n8k32_s8(operands[HALF][1], b, c[1]),
                ];
            });
        });
        difference(c)
    }

    /// Σ step·x of the lane's sub-blocks t and t + 4: rows g and g + 8 of each. All lanes of the warp call this together.
    #[inline(always)]
    fn sums(&self, book: Book, x: &Activation, lane: u32) -> [[i32; 2]; 2] {
        [
            self.sums_of::<0>(book, [x.words[0], x.words[1]], lane),
            self.sums_of::<2>(book, [x.words[2], x.words[3]], lane),
        ]
    }
}

/// A lane's share of an IQ4_NL tile: `w = d·step`.
#[derive(Clone, Copy)]
pub struct Iq4NlTile {
    pub(crate) codes: Codes,
    pub(crate) scales: [u32; 2],
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
    pub(crate) codes: Codes,
    pub(crate) exponents: u32,
}

impl Mxfp4Tile {
    /// Row `r` of the lane: `v` are the sums of its two sub-blocks.
    #[inline(always)]
    fn row(&self, r: u32, v: [i32; 2], x: &Activation) -> f32 {
        let d = |k: u32| power_of_two(self.exponents >> (16 * r + 8 * k) & 255);
        float::fma(d(0) * x.scale, v[0] as f32, d(1) * x.scale * v[1] as f32)
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
    pub(crate) codes: Codes,
    pub(crate) header: u32,
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
        for (book, steps) in [(IQ4, IQ4_TABLE), (FP4, FP4_TABLE)] {
            for (code, step) in (0u32..).zip(steps) {
                for place in 0..4 {
                    // The neighbours have the other extreme.
                    let codes = (0x7777 & !(15 << (4 * place))) | code << (4 * place);
                    let found = |sign| {
                        let bytes = book.look_up(sign, codes ^ book.signs[sign] & 0xffff).to_le_bytes();
                        i32::from(bytes[place as usize] as i8)
                    };
                    assert_eq!(found(0) - found(1), i32::from(step), "code {code}, place {place}");
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
