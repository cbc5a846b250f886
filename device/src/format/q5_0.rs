//! Q5_0: 32 nibbles with a fifth bit each and one f16 scale, `w = d·(q − 16)`. 22 bytes, aligned to 2.

use super::cursor::Cursor;
use super::fragment::{Fragments, Term};
use super::{Format, bytes, half_split, map, u16_at, u32_at_even};
use crate::num::half;

/// 5-bit weights in blocks of 32.
pub struct Q5_0;

impl Format for Q5_0 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 22;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let d = half(u16_at(block, 0));
            let fifth = half_split::fifth_bits(u32_at_even(block, 2), k);
            let [low, high] = half_split::nibbles(block, 6, k);
            map(bytes(low | fifth[0], high | fifth[1]), |q| d * (q - 16.0))
        }
    }
}

/// What a lane needs of a block.
#[derive(Clone, Copy)]
pub struct Part {
    word: u32,
    fifth: u32,
    d: f32,
}

impl Fragments for Q5_0 {
    const STEPS: usize = 1;
    const TERM: Term = Term::Offset;
    type Part = Part;

    #[inline(always)]
    fn offset(_step: u32, _half: u32) -> i32 {
        16
    }

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        Part {
            word: block.past(6 + 4 * t).word_even(),
            fifth: block.past(2).word_even() >> (4 * t),
            d: block.half(),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        half_split::five_bits(part.word, part.fifth)
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [part.d, 0.0]
    }
}
