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

/// What a lane needs of a block.
#[derive(Clone, Copy)]
pub struct Part {
    word: u32,
    d: f32,
}

impl Fragments for Mxfp4 {
    const STEPS: usize = 1;
    const LINKS: usize = 2;
    const TWICE: bool = true;
    const SIGNED: bool = true;
    const SPREAD: u32 = 16;
    /// Steps are doubled.
    const UNIT: f32 = 0.5;
    /// Each alignment comes twice.
    const TOGETHER: u32 = 8;
    type Part = Part;

    #[inline(always)]
    fn first_column(number: u32, half: u32, t: u32) -> u32 {
        table::first_column(number, half, t)
    }

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        Part {
            word: block.past(1).word_anywhere(t),
            // A byte of which nothing is known: the compiler would mask it again behind the shift.
            d: power_of_two(rolled(block.byte())),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        table::FP4_STEPS.resident().of::<LINK>([part.word, part.word >> 16])
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
