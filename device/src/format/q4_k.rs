//! Q4_K: 256 nibbles in eight sub-blocks, `w = d·scale·q − dmin·min`. 144 bytes, aligned to 16.

use super::cursor::Cursor;
use super::fragment::{Fragments, Term, nibbles};
use super::k_quant::Scales;
use super::{Format, bytes, k_quant, map, u32_at};

/// 4-bit weights in blocks of 256.
pub struct Q4K;

impl Format for Q4K {
    const BLOCK: u32 = 256;
    const BYTES: u32 = 144;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (j, at) = (k / 4, 16 + 32 * (k / 8) + 8 * (k % 4));
            let (scale, min) = k_quant::scale_min(block, j);
            let nibble = |at: u32| u32_at(block, at) >> (4 * (j & 1)) & 0x0f0f_0f0f;
            map(bytes(nibble(at), nibble(at + 4)), |q| scale * q - min)
        }
    }
}

/// What a lane needs of a block.
#[derive(Clone, Copy)]
pub struct Part {
    words: [[u32; 2]; 4],
    scales: Scales,
}

impl Fragments for Q4K {
    const STEPS: usize = 4;
    const LINKS: usize = 2;
    const HIGH: f32 = 1.0 / 16.0;
    const TERM: Term = Term::Minima;
    const WHOLE: bool = true;
    type Part = Part;

    #[inline(always)]
    fn first_column(number: u32, half: u32, t: u32) -> u32 {
        k_quant::first_column(number, half, t)
    }

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        Part {
            words: k_quant::words(block.past(16), t),
            scales: Scales::load(block, t),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        nibbles(part.words[STEP][LINK])
    }

    /// Four steps of at most 32·240·128, times 63.
    #[inline(always)]
    fn factor<const STEP: usize>(part: &Part) -> i32 {
        part.scales.of::<STEP>()
    }

    #[inline(always)]
    fn minima(part: &Part) -> u32 {
        part.scales.minima()
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        part.scales.factors()
    }
}
