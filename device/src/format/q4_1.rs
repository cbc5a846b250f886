//! Q4_1: 32 nibbles, f16 scale and offset, `w = d·q + m`. 20 bytes, aligned to 4.

use super::cursor::Cursor;
use super::fragment::{Fragments, Term, nibbles};
use super::{Format, bytes, half_split, map, u16_at};
use crate::num::half;

/// 4-bit weights with an offset, in blocks of 32.
pub struct Q4_1;

impl Format for Q4_1 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 20;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (d, m) = (half(u16_at(block, 0)), half(u16_at(block, 2)));
            let [low, high] = half_split::nibbles(block, 4, k);
            map(bytes(low, high), |q| d * q + m)
        }
    }
}

/// What a lane needs of a block.
#[derive(Clone, Copy)]
pub struct Part {
    word: u32,
    d: f32,
    m: f32,
}

impl Fragments for Q4_1 {
    const STEPS: usize = 1;
    const HIGH: f32 = 1.0 / 16.0;
    const TERM: Term = Term::Minimum;
    type Part = Part;

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        let head = block.word();
        Part {
            word: block.past(4 + 4 * t).word(),
            d: half(head & 0xffff),
            m: half(head >> 16),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        nibbles(part.word)
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [part.d, part.m]
    }
}
