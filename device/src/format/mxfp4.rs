//! MXFP4: 32 E2M1 values and one power of two. 17 bytes, not aligned.

use super::cursor::Cursor;
use super::fragment::Fragments;
use super::{Format, map, table, u32_at_any};
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

/// 2^(e − 128): the float whose exponent is e − 1, or one of the two that lie below all such.
#[inline(always)]
fn power_of_two(e: u32) -> f32 {
    // For e below 2 the second is the larger one, and right.
    let (normal, other) = ((e << 23).wrapping_sub(1 << 23) as i32, ((e + 1) << 21) as i32);
    f32::from_bits(normal.max(other) as u32)
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
    type Part = Part;

    #[inline(always)]
    fn first_column(number: u32, half: u32, t: u32) -> u32 {
        table::first_column(number, half, t)
    }

    #[inline(always)]
    fn load(block: Cursor, t: u32, factor: f32) -> Part {
        Part {
            word: block.past(1 + 4 * t).word_anywhere(),
            d: power_of_two(block.byte()) * factor,
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        table::FP4_STEPS.resident().of_word::<LINK>(part.word)
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
        for e in 0..=255u8 {
            assert_eq!(power_of_two(u32::from(e)), e8m0_half(e), "{e}");
        }
    }
}
