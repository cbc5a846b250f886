//! Q4_0: 32 nibbles and one f16 scale, `w = d·(q − 8)`. 18 bytes, aligned to 2.

use super::cursor::Cursor;
use super::fragment::{Fragments, Term, nibbles};
use super::{Format, bytes, half_split, map, u16_at};
use crate::num::half;

/// 4-bit weights in blocks of 32.
pub struct Q4_0;

impl Format for Q4_0 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 18;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let d = half(u16_at(block, 0));
            let [low, high] = half_split::nibbles(block, 2, k);
            map(bytes(low, high), |q| d * (q - 8.0))
        }
    }
}

/// What a lane needs of a block.
#[derive(Clone, Copy)]
pub struct Part {
    word: u32,
    d: f32,
}

impl Fragments for Q4_0 {
    const STEPS: usize = 1;
    const HIGH: f32 = 1.0 / 16.0;
    const TERM: Term = Term::Offset;
    type Part = Part;

    #[inline(always)]
    fn offset(_step: u32, half: u32) -> i32 {
        8 << (4 * half)
    }

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        Part {
            word: block.past(2 + 4 * t).word_even(),
            d: block.half(),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        nibbles(part.word)
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [part.d, 0.0]
    }
}
