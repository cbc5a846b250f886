//! Activations as whole numbers of four digits, for tensor cores that multiply bytes exactly.
//!
//! The activations of a piece of 256 columns are multiples of one power of two: of 2⁻³⁰ of the power above
//! the largest. So those within 2⁻⁶ of the largest keep all their bits, and what any other loses is at most 2⁻³⁰ of the
//! largest: far less than the sums of floats would lose. The multiples' digits to base 256, from −128 to 127, are columns
//! of a matrix: four meet the first half of a product's 32 columns, four the second, and zeros lie where the others meet.

use super::ring::{PIECE, WARPS};
use crate::format::fragment::{Fragments, Term};
use cuda_std::prelude::*;

/// Exponent of the largest activation's power less that of the multiples' unit.
const EXPONENT: u32 = 29;

/// Words of a product's fragment of activations.
const FRAGMENT: u32 = 64;
/// Words of a product's terms: two for each of four lanes.
const TERMS: u32 = 8;
/// Products of a piece.
const PRODUCTS: u32 = PIECE / 32;
/// Words of a piece's factors, one for each of four lanes.
const FACTORS: u32 = 4;

/// Exponent of the unit of sums of activations less that of activations' own: so many are at most added.
const SUMS: i32 = 5;

/// Products that `columns` columns have room for: blocks may be multiplied two by two.
const fn products(columns: u32) -> u32 {
    columns.div_ceil(64) * 2
}

/// The activations of a round.
#[derive(Clone, Copy)]
pub(super) struct Activations {
    fragments: Shared<u32>,
    /// Where sums begin, or the activations' own sums.
    terms: Shared<i32>,
    factors: Shared<f32>,
}

/// Four columns of a product: number of the product, half, and place in it.
#[derive(Clone, Copy)]
struct Four {
    product: u32,
    half: u32,
    t: u32,
}

impl Four {
    #[inline(always)]
    fn new(index: u32) -> Self {
        Self {
            product: index / 8,
            half: index / 4 % 2,
            t: index % 4,
        }
    }

    /// Their activations; zeros behind the last column.
    #[inline(always)]
    unsafe fn load<F: Fragments>(self, x: *const f32, columns: u32) -> [f32; 4] {
        let products = F::COLUMNS / 32;
        let group = self.product / products * F::COLUMNS;
        let first = group + F::first_column(self.product % products, self.half, self.t);
        if first >= columns {
            return [0.0; 4];
        }
        let second = if F::SPREAD == 1 { 2 } else { F::SPREAD };
        // SAFETY: the caller's: the block lies within x, whose start is aligned to 16 bytes; the column is even.
        let [a, b] =
            [first, first + second].map(|column| unsafe { global::load(x.add(column as usize).cast::<F32x2>()).0 });
        if F::SPREAD == 1 {
            [a[0], a[1], b[0], b[1]]
        } else {
            [a[0], b[0], a[1], b[1]]
        }
    }
}

/// The largest size, as bits, of the warp's activations.
#[inline(always)]
fn largest(x: [[f32; 4]; 2]) -> u32 {
    let size = |x: f32| x.to_bits() & 0x7fff_ffff;
    let [a, b] = x.map(|[a, b, c, d]| size(a).max(size(b)).max(size(c).max(size(d))));
    let mut most = a.max(b);
    unroll!(for I in 0..5 {
        most = most.max(warp::shuffle_xor(most, 1 << I));
    });
    most
}

/// The unit of activations up to a size, and 1 / it. The unit of what is not finite is no number.
#[inline(always)]
fn unit(size: u32) -> [f32; 2] {
    let exponent = (size >> 23).max(EXPONENT + 1);
    let unit = if exponent == 255 {
        f32::NAN
    } else {
        f32::from_bits((exponent - EXPONENT) << 23)
    };
    [unit, f32::from_bits((254 + EXPONENT - exponent) << 23)]
}

/// The digits of four whole numbers below 2³⁰ in size: the lowest of all, the next, and so on.
#[inline(always)]
fn digits(numbers: [i32; 4]) -> [u32; 4] {
    // Every digit and 128 are the digits of the sum; without the 128 their top bits turn.
    let [a, b, c, d] = numbers.map(|v| (v as u32).wrapping_add(0x8080_8080) ^ 0x8080_8080);
    let pairs = |selector| [dot::permute_bytes(a, b, selector), dot::permute_bytes(c, d, selector)];
    let ([low, low_too], [high, high_too]) = (pairs(0x5140), pairs(0x7362));
    [
        dot::permute_bytes(low, low_too, 0x5410),
        dot::permute_bytes(low, low_too, 0x7632),
        dot::permute_bytes(high, high_too, 0x5410),
        dot::permute_bytes(high, high_too, 0x7632),
    ]
}

/// Sums of a half's sixteen digits: digits 2t and 2t + 1 in lane t, 0 or 1.
#[inline(always)]
fn digit_sums(digits: [u32; 4], t: u32) -> [i32; 2] {
    let sum = |word: u32| dot::dp4a_ss(word, 0x0101_0101, 0);
    // Two in a word.
    let pair = |i: usize| sum(digits[i]) + (sum(digits[i + 1]) << 16);
    let mut pairs = [pair(0), pair(2)];
    unroll!(for I in 0..2 {
        pairs = pairs.map(|pair| pair + warp::shuffle_xor(pair, 1 << I));
    });
    let pair = if t == 0 { pairs[0] } else { pairs[1] };
    let low = (pair << 16) >> 16;
    [low, (pair - low) >> 16]
}

/// The sum of the activations of a half, or of a sub-block that two products share.
#[inline(always)]
fn half_sum<F: Fragments>([a, b, c, d]: [f32; 4]) -> f32 {
    let mut sum = (a + b) + (c + d);
    unroll!(for I in 0..2 {
        sum += warp::shuffle_xor(sum, 1 << I);
    });
    if F::OWN == 2 {
        sum += warp::shuffle_xor(sum, 8);
    }
    sum
}

/// What the sums of a half are multiplied by beside the unit.
#[inline(always)]
fn half_factor<F: Fragments>(half: u32) -> f32 {
    if half == 1 { F::UNIT * F::HIGH } else { F::UNIT }
}

impl Activations {
    /// Bytes of shared memory for `columns` activations.
    pub const fn bytes(columns: u32) -> u32 {
        (WARPS * (FACTORS + PRODUCTS * TERMS) + products(columns) * FRAGMENT) * 4
    }

    #[inline(always)]
    pub fn at(offset: u32, columns: u32) -> Self {
        // What is small lies first, with room for most columns: so all lie at constant places.
        let (factors, terms) = (FACTORS * WARPS, TERMS * PRODUCTS * WARPS);
        Self {
            factors: shared::dynamic(offset, factors),
            terms: shared::dynamic(offset + 4 * factors, terms),
            fragments: shared::dynamic(offset + 4 * (factors + terms), FRAGMENT * products(columns)),
        }
    }

    /// Brings `columns` activations in. All threads of the block call this; a warp takes 256 columns at a time.
    ///
    /// # Safety
    /// x has so many floats, aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn fill<F: Fragments>(self, x: *const f32, columns: u32) {
        let mut part = warp::index();
        while 256 * part < columns {
            let fours = [0, 32].map(|more| Four::new(64 * part + more + warp::lane()));
            // SAFETY: the caller's.
            let x = fours.map(|four| unsafe { four.load::<F>(x, columns) });
            let unit = unit(largest(x));
            unroll!(for I in 0..2 {
                self.put::<F>(fours[I], x[I], unit, columns);
            });
            part += warp::count();
        }
    }

    /// Stores four activations as multiples of a unit. The whole warp calls this.
    #[inline(always)]
    fn put<F: Fragments>(self, four: Four, x: [f32; 4], [unit, inverse]: [f32; 2], columns: u32) {
        let digits = digits(x.map(|x| float::to_i32_round(x * inverse)));
        let inside = four.product < products(columns);
        if inside {
            unroll!(for N in 0..4 {
                let column = 4 * four.half + N as u32;
                let at = FRAGMENT * four.product + 2 * (4 * column + four.t);
                let word = |half: u32| if half == four.half { digits[N] } else { 0 };
                self.fragments.store_as(at, U32x2([word(0), word(1)]));
            });
            if four.product.is_multiple_of(PRODUCTS) && four.half == 0 {
                let digit = if four.t % 2 == 1 { 65_536.0 } else { 1.0 };
                let factor = unit * digit * half_factor::<F>(four.t / 2);
                self.factors.store(FACTORS * (four.product / PRODUCTS) + four.t, factor);
            }
        }
        match F::TERM {
            Term::Nothing => {}
            Term::Offset => self.put_starts::<F>(four, digits, inside),
            Term::Scaled => self.put_digit_sums(four, digits, inside),
            Term::Minimum => self.put_sums::<F>(four, x, inverse, inside),
            Term::Minima => self.put_sum_digits::<F>(four, x, inverse, inside),
        }
    }

    /// Where the sums of a half begin: what its bytes are too large by, times the activations, is taken off.
    #[inline(always)]
    fn put_starts<F: Fragments>(self, four: Four, digits: [u32; 4], inside: bool) {
        let sums = digit_sums(digits, four.t);
        if inside && four.t < 2 {
            let offset = F::offset(four.product % (F::BLOCK / 32), four.half);
            let starts = sums.map(|sum| (-offset * sum) as u32);
            let at = TERMS * four.product + 2 * (2 * four.half + four.t);
            self.terms.store_as(at, U32x2(starts));
        }
    }

    /// The sums of a half's digits, for all sixteen halves of a block: bytes that scales meet, those of first halves in the
    /// first lane of a column, of second ones in the third; the others have zeros. The lower bytes' columns are as the digits',
    /// the upper ones' follow.
    #[inline(always)]
    fn put_digit_sums(self, four: Four, digits: [u32; 4], inside: bool) {
        let sums = digit_sums(digits, four.t);
        let (piece, step) = (four.product / PRODUCTS, four.product % PRODUCTS);
        let terms = self.terms.slice(TERMS * PRODUCTS * piece, TERMS * PRODUCTS);
        if inside && four.t < 2 {
            unroll!(for I in 0..2 {
                let at = 32 * (2 * four.t + I as u32) + 16 * four.half + step;
                let bytes: Shared<u8> = terms.cast();
                bytes.store(at, sums[I] as u8);
                bytes.store(at + 4 * 32, ((sums[I] + 128) >> 8) as u8);
            });
        } else if inside {
            let word = 2 * (2 * step + four.half) + four.t - 2;
            terms.store(4 * (word / 2) + 2 + word % 2, 0);
        }
    }

    /// The sums of a half's activations by the factor of that half's sums, in the first of the two lanes that have them.
    #[inline(always)]
    fn put_sums<F: Fragments>(self, four: Four, x: [f32; 4], inverse: f32, inside: bool) {
        let sum = half_sum::<F>(x) * inverse / half_factor::<F>(four.half);
        if inside && four.t < 2 {
            let sum = if four.t == 0 { sum } else { 0.0 };
            let at = TERMS * four.product + 2 * four.half + four.t;
            self.terms.store(at, sum.to_bits() as i32);
        }
    }

    /// The sums of sub-blocks' activations as digits: the fragment that a block's minima meet.
    #[inline(always)]
    fn put_sum_digits<F: Fragments>(self, four: Four, x: [f32; 4], inverse: f32, inside: bool) {
        let number = float::to_i32_round(half_sum::<F>(x) * (inverse / (1 << SUMS) as f32));
        // Where two products share a sub-block the second fills a place that no sub-block has, with nothing.
        let (second, sub_block) = if F::OWN == 1 {
            (0, 2 * (four.product % 8) + four.half)
        } else {
            (four.product % 2, four.product % 8 / 2 * 2 + four.half)
        };
        let place = sub_block + 8 * second;
        if inside {
            let digit = if second == 0 { digits([number, 0, 0, 0]) } else { [0; 4] };
            let low = if four.t == 0 { digit[0] } else { digit[1] };
            let high = if four.t == 2 { digit[2] } else { digit[3] };
            let digit = if four.t < 2 { low } else { high };
            let fragment: Shared<u8> = self
                .terms
                .slice(TERMS * PRODUCTS * (four.product / PRODUCTS), TERMS * PRODUCTS)
                .cast();
            unroll!(for I in 0..4 {
                let (column, half) = (four.t + 4 * (I as u32 / 2), I as u32 % 2);
                let at = 8 * (4 * column + place / 4) + 4 * half + place % 4;
                fragment.store(at, if I == 0 { digit as u8 } else { 0 });
            });
        }
    }

    /// What the lane's sums of the warp's piece, which has `columns` columns, are multiplied by.
    #[inline(always)]
    pub fn own_factor(self, columns: u32) -> f32 {
        if columns == 0 {
            return 0.0;
        }
        self.factors.load(FACTORS * warp::index() + warp::lane() % 4)
    }

    /// The lane's part of product `product`'s fragment.
    #[inline(always)]
    pub fn fragment(self, product: u32) -> [u32; 2] {
        self.fragments.load_as::<U32x2>(FRAGMENT * product + 2 * warp::lane()).0
    }

    /// Where lane `t`'s sums of step `step` begin.
    #[inline(always)]
    pub fn start<F: Fragments>(self, step: u32, t: u32) -> [i32; 4] {
        if F::TERM != Term::Offset {
            return [0; 4];
        }
        let [a, b] = self
            .terms
            .load_as::<U32x2>(TERMS * step + 2 * t)
            .0
            .map(|word| word as i32);
        [a, b, a, b]
    }

    /// The lane's part of the fragment that block `block`'s minima meet, and the unit of their sums by that of others.
    #[inline(always)]
    pub fn sums<F: Fragments>(self, block: u32) -> ([u32; 2], f32) {
        let terms = self.terms.load_as::<U32x2>(TERMS * PRODUCTS * block + 2 * warp::lane());
        (terms.0, (1 << SUMS) as f32 / F::UNIT)
    }

    /// The lane's part of the fragment that block `block`'s scales meet.
    #[inline(always)]
    pub fn digit_sums(self, block: u32) -> [u32; 2] {
        self.terms
            .load_as::<U32x2>(TERMS * PRODUCTS * block + 2 * warp::lane())
            .0
    }

    /// The activations' sum of lane `t`'s half of step `step`; 0 in the second lane of a half.
    #[inline(always)]
    pub fn sum(self, step: u32, t: u32) -> f32 {
        f32::from_bits(self.terms.load(TERMS * step + t) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_make_the_numbers() {
        let numbers = [0x3fff_ffff, -0x3fff_ffff, 127, -129];
        let words = digits(numbers).map(|word| word.to_le_bytes().map(|b| i64::from(b as i8)));
        for (i, number) in numbers.into_iter().enumerate() {
            let sum: i64 = (0..4).map(|n| words[n][i] << (8 * n)).sum();
            assert_eq!(sum, i64::from(number));
        }
    }

    #[test]
    fn units_keep_the_largest_below_two_to_the_thirty() {
        for x in [1.0f32, 1.999_999_9, 3e38, 1e-20, 1e-38, 1e-45, 0.0] {
            let [unit, inverse] = unit(x.to_bits());
            assert!(unit * inverse == 1.0 && x * inverse < 1_073_741_824.0, "{x}");
        }
        assert!(unit(f32::INFINITY.to_bits())[0].is_nan() && unit(f32::NAN.to_bits())[0].is_nan());
    }
}
