//! MXFP4: 32 E2M1 values and one power of two. 17 bytes, not aligned.

use super::cursor::Cursor;
use super::fragment::Fragments;
use super::{Format, map, table, u32_at_any};
use cuda_std::unroll::rolled;
use sparkinfer_gguf::blocks::e8m0_half;

/// 4-bit floats with a common exponent, in blocks of 32.
pub struct Mxfp4;

impl Format for Mxfp4 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 17;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let d = e8m0_half(block.read());
            let (at, shift) = (1 + 8 * (k & 1), 4 * (k >> 1));
            let four = |i: u32| u32_at_any(block, at + i) >> shift & 0x0f0f_0f0f;
            map(table::look_up(table::FP4, [four(0), four(4)]), |t| d * t)
        }
    }
}

/// 2^(e − 127). The two ends of the scale lie outside a float's normal numbers: weights of exponent 0, all below 4·10⁻³⁸, count
/// as 0, and 255, which stands for no number, becomes infinity.
#[inline(always)]
fn power_of_two(e: u32) -> f32 {
    f32::from_bits(e << 23)
}

/// What a lane needs of two blocks: a word of each, and the factor of the one whose sums it has.
#[derive(Clone, Copy)]
pub struct Part {
    words: [u32; 2],
    d: f32,
}

/// The factor of a block.
#[inline(always)]
fn factor(block: Cursor) -> f32 {
    // A byte of which nothing is known: the compiler would mask it again behind the shift.
    power_of_two(rolled(block.byte()))
}

impl Fragments for Mxfp4 {
    const STEPS: usize = 1;
    const LINKS: usize = 4;
    const TWICE: bool = true;
    const SIGNED: bool = true;
    const SPREAD: u32 = 16;
    /// Steps are doubled.
    const UNIT: f32 = 0.5;
    /// A block has one factor: its sums come together if it is the same half of both its products.
    const GROUP: u32 = 2;
    /// Each alignment comes twice.
    const TOGETHER: u32 = 4;
    const BY_ALIGNMENT: bool = true;
    type Part = Part;

    #[inline(always)]
    fn first_column(number: u32, half: u32, t: u32) -> u32 {
        32 * half + 4 * t + 2 * number
    }

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        let own = Cursor {
            start: block.start + Self::BYTES * (t / 2),
            ..block
        };
        Part {
            words: [0, Self::BYTES].map(|bytes| block.past(bytes + 1).word_anywhere(t)),
            d: factor(own),
        }
    }

    #[inline(always)]
    fn load_first(block: Cursor, t: u32) -> Part {
        Part {
            words: [block.past(1).word_anywhere(t), 0],
            // The second half's sums are zero.
            d: factor(block),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        let codes = part.words.map(|word| if LINK < 2 { word } else { word >> 16 });
        let steps = table::FP4_STEPS.resident();
        match LINK % 2 {
            0 => steps.of::<0>(codes),
            _ => steps.of::<1>(codes),
        }
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [part.d, 0.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exponent_has_its_power() {
        for e in 1..255u8 {
            assert_eq!(power_of_two(u32::from(e)), 2.0 * e8m0_half(e), "{e}");
        }
        assert_eq!((power_of_two(0), power_of_two(255)), (0.0, f32::INFINITY));
    }
}
