//! Q5_1: 32 nibbles with a fifth bit each, f16 scale and offset, `w = d·q + m`. 24 bytes, aligned to 8.

use super::cursor::Cursor;
use super::fragment::{Fragments, Term};
use super::{Format, bytes, half_split, map, u16_at, u32_at};
use crate::num::half;

/// 5-bit weights with an offset, in blocks of 32.
pub struct Q5_1;

impl Format for Q5_1 {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 24;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (d, m) = (half(u16_at(block, 0)), half(u16_at(block, 2)));
            let fifth = half_split::fifth_bits(u32_at(block, 4), k);
            let [low, high] = half_split::nibbles(block, 8, k);
            map(bytes(low | fifth[0], high | fifth[1]), |q| d * q + m)
        }
    }
}

/// What a lane needs of a block.
#[derive(Clone, Copy)]
pub struct Part {
    word: u32,
    fifth: u32,
    d: f32,
    m: f32,
}

impl Fragments for Q5_1 {
    const STEPS: usize = 1;
    const TERM: Term = Term::Minimum;
    type Part = Part;

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        let head = block.word();
        Part {
            word: block.past(8 + 4 * t).word(),
            fifth: block.past(4).word() >> (4 * t),
            d: half(head & 0xffff),
            m: half(head >> 16),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        half_split::five_bits(part.word, part.fifth)
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [part.d, part.m]
    }
}
