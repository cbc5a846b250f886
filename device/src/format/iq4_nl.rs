//! IQ4_NL: 32 nibbles that index a table of steps, and one f16 scale, `w = d·T[q]`. 18 bytes, aligned to 2.

use super::cursor::Cursor;
use super::fragment::Fragments;
use super::{Format, half_split, map, table, u16_at};
use crate::num::half;

/// 4-bit non-linear weights in blocks of 32.
pub struct Iq4Nl;

impl Format for Iq4Nl {
    const BLOCK: u32 = 32;
    const BYTES: u32 = 18;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let d = half(u16_at(block, 0));
            map(table::look_up(table::IQ4, half_split::nibbles(block, 2, k)), |t| d * t)
        }
    }
}

/// What a lane needs of a block.
#[derive(Clone, Copy)]
pub struct Part {
    /// Two bytes each.
    nibbles: [u32; 2],
    d: f32,
}

impl Fragments for Iq4Nl {
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
    fn load(block: Cursor, t: u32) -> Part {
        Part {
            nibbles: block.past(2 + 4 * t).shorts(),
            d: block.half(),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        table::IQ4_STEPS.resident().of::<LINK>(part.nibbles)
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [part.d, 0.0]
    }
}
