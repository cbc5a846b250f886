//! Blocks as they are multiplied from shared memory: as the fragments of matrices that tensor cores take.
//!
//! A product of tensor cores takes 32 columns of sixteen rows as bytes; the four lanes that share a row bring eight bytes
//! each, four of either *half* of the columns. A weight is `a·q + m`, q the byte, or some of its bits where they lie. So a
//! type says which bytes a lane brings, of which columns they are, and what a and m are: for each *step*, a sum that has
//! factors of its own in both halves. The sums of halves come apart, because the activations of a half meet zeros in the
//! other one's columns: so the high nibbles of a word stay where they are, and their factor is a sixteenth. Where a block
//! has scales that are small whole numbers, the sums of its steps are whole numbers too.

use super::Format;
use super::cursor::Cursor;
use cuda_std::prelude::*;

/// What a weight has beside a factor times the byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Term {
    /// Nothing.
    Nothing,
    /// The byte is too large by an offset that the type knows.
    Offset,
    /// The byte, times its whole factor, is too large by the same offset everywhere, times one of sixteen scales.
    Scaled,
    /// A float, for each step.
    Minimum,
    /// A float times a byte for each 16 or 32 columns that have a scale.
    Minima,
}

/// A type with blocks of 32, 64 or 256 columns, as fragments.
///
/// `t`, 0 to 3, is a lane's place among the four of a row: they bring bytes of both halves, and have the sums of half
/// `t / 2`.
pub trait Fragments: Format {
    /// Sums of a block.
    const STEPS: usize;
    /// Products that a sum is made of, 4 at most.
    const LINKS: usize = 1;
    /// Whether a step's products are two by two of the same columns: its weights are sums of bytes.
    const TWICE: bool = false;
    /// Whether bytes have signs.
    const SIGNED: bool = false;
    /// Columns from the first byte of a lane's four to the second: 1 where all follow each other, else bytes one and three
    /// are the neighbours of bytes zero and two.
    const SPREAD: u32 = 1;
    /// What the sums of the second half are to be multiplied by: a power of two.
    const HIGH: f32 = 1.0;
    /// What all sums are to be multiplied by: a power of two.
    const UNIT: f32 = 1.0;
    /// What weights have beside factors.
    const TERM: Term = Term::Nothing;
    /// Whether steps have whole numbers for factors, and the block one float for all.
    const WHOLE: bool = false;

    /// Blocks that are multiplied as one: two if each is a half of all their products.
    const GROUP: u32 = 1;
    /// Columns of so many.
    const COLUMNS: u32 = Self::GROUP * Self::BLOCK;

    /// Groups of a piece that are written out one after the other, with one address: as many as registers allow.
    const TOGETHER: u32 = 128 / Self::COLUMNS;
    /// Whether rows that begin at a multiple of four are multiplied by instructions of their own.
    const BY_ALIGNMENT: bool = false;

    /// Products of a step that have columns of their own.
    const OWN: usize = if Self::TWICE { Self::LINKS / 2 } else { Self::LINKS };

    /// What a lane needs of a group.
    type Part: Copy;

    /// The column of the first byte of lane `t`'s four in a half of product `number` of a group.
    #[inline(always)]
    fn first_column(number: u32, half: u32, t: u32) -> u32 {
        32 * number + 16 * half + 4 * t
    }

    /// By how much the bytes of a step's half are too large.
    #[inline(always)]
    fn offset(_step: u32, _half: u32) -> i32 {
        0
    }

    /// What weights are too large by, in their whole factor's unit, by a unit of their scale.
    const OFFSET: i32 = 0;

    /// The signed scales of the lane's half of steps 0 to 3 and 4 to 7; any where there is no such offset.
    #[inline(always)]
    fn scales(_part: &Self::Part) -> [u32; 2] {
        [0; 2]
    }

    /// What lane `t` needs of the group that begins at `block`.
    fn load(block: Cursor, t: u32) -> Self::Part;

    /// The same where a row has the first block alone. What lies behind it may be anything.
    #[inline(always)]
    fn load_first(block: Cursor, t: u32) -> Self::Part {
        Self::load(block, t)
    }

    /// The bytes of a product, of both halves.
    fn bytes<const STEP: usize, const LINK: usize>(part: &Self::Part) -> [u32; 2];

    /// The whole factor of the lane's half of a step. Sums of a block stay below 2³¹: say why.
    #[inline(always)]
    fn factor<const STEP: usize>(_part: &Self::Part) -> i32 {
        1
    }

    /// The bytes of minima of sub-blocks 4t … 4t + 3; any where there are none.
    #[inline(always)]
    fn minima(_part: &Self::Part) -> u32 {
        0
    }

    /// a and m of the lane's half of a step; of the block where factors are whole.
    fn scale<const STEP: usize>(part: &Self::Part) -> [f32; 2];
}

/// Byte `i` of a word.
#[inline(always)]
pub(super) fn byte(word: u32, i: u32) -> i32 {
    dot::permute_bytes(word, 0, 0x4440 | i) as i32
}

/// Byte `i` of a word, with its sign.
#[inline(always)]
pub(super) fn signed_byte(word: u32, i: u32) -> i32 {
    dot::permute_bytes(word, 0, 0x8880 + 0x1111 * i) as i32
}

/// The low and the high nibbles of a word where they lie.
#[inline(always)]
pub(super) fn nibbles(word: u32) -> [u32; 2] {
    [word & 0x0f0f_0f0f, word & 0xf0f0_f0f0]
}

/// The product of a fragment of sixteen rows with one of activations, added to `sums`.
#[inline(always)]
pub fn multiply<F: Fragments>(rows: [[u32; 2]; 2], x: [u32; 2], sums: [i32; 4]) -> [i32; 4] {
    let a = [rows[0][0], rows[1][0], rows[0][1], rows[1][1]];
    if F::SIGNED {
        mma::m16n8k32_s8(a, x, sums)
    } else {
        mma::m16n8k32_u8_s8(a, x, sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_with_and_without_signs() {
        for (i, b) in [(0, 1), (1, 0x80), (2, 0x7f), (3, 0xfe)] {
            assert_eq!(byte(0xfe7f_8001, i), b);
            assert_eq!(signed_byte(0xfe7f_8001, i), i32::from(b as u8 as i8));
        }
    }
}
