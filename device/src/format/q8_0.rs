//! Q8_0: 32 signed bytes and one f16 scale, `w = d·q`. 34 bytes, aligned to 2.

use super::cursor::Cursor;
use super::fragment::Fragments;
use super::{Format, map, signed_bytes, u16_at, u32_at_even};
use crate::num::half;

/// 8-bit weights in blocks of 32.
pub struct Q8_0;

impl Format for Q8_0 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 34;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let d = half(u16_at(block, 0));
            let q = signed_bytes(u32_at_even(block, 2 + 8 * k), u32_at_even(block, 6 + 8 * k));
            map(q, |q| d * q)
        }
    }
}

/// What a lane needs of a block.
#[derive(Clone, Copy)]
pub struct Part {
    bytes: [u32; 2],
    d: f32,
}

impl Fragments for Q8_0 {
    const STEPS: usize = 1;
    const SIGNED: bool = true;
    type Part = Part;

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        let word = block.past(2 + 4 * t);
        Part {
            bytes: [word.word_even(), word.past(16).word_even()],
            d: block.half(),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        part.bytes
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [part.d, 0.0]
    }
}
