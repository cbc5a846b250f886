//! Q5_K: as Q4_K with a fifth bit for each weight, `w = d·scale·q − dmin·min`. 176 bytes, aligned to 16.

use super::cursor::Cursor;
use super::fragment::{Fragments, Term};
use super::k_quant::Scales;
use super::{Format, bytes, k_quant, map, u32_at};

/// 5-bit weights in blocks of 256.
pub struct Q5K;

impl Format for Q5K {
    const BLOCK: u32 = 256;
    const BYTES: u32 = 176;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (j, l) = (k / 4, 8 * (k % 4));
            let (scale, min) = k_quant::scale_min(block, j);
            let four = |i: u32| {
                let nibble = u32_at(block, 48 + 32 * (j / 2) + l + i) >> (4 * (j & 1)) & 0x0f0f_0f0f;
                nibble | (u32_at(block, 16 + l + i) >> j & 0x0101_0101) << 4
            };
            map(bytes(four(0), four(4)), |q| scale * q - min)
        }
    }
}

/// What a lane needs of a block.
#[derive(Clone, Copy)]
pub struct Part {
    words: [[u32; 2]; 4],
    fifth: [u32; 2],
    scales: Scales,
}

impl Fragments for Q5K {
    const STEPS: usize = 4;
    const LINKS: usize = 2;
    const TERM: Term = Term::Minima;
    const WHOLE: bool = true;
    type Part = Part;

    #[inline(always)]
    fn first_column(number: u32, half: u32, t: u32) -> u32 {
        k_quant::first_column(number, half, t)
    }

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        let fifth = block.past(16 + 4 * t);
        Part {
            words: k_quant::words(block.past(48), t),
            fifth: [fifth.word(), fifth.past(16).word()],
            scales: Scales::load(block, t),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        let (word, fifth) = (part.words[STEP][LINK], part.fifth[LINK]);
        // Sub-blocks 2·STEP and 2·STEP + 1: bits of the same numbers, which go to bit 4.
        let (low, high) = if STEP == 3 {
            (fifth >> 2, fifth >> 3)
        } else if STEP == 2 {
            (fifth, fifth >> 1)
        } else {
            (fifth << (4 - 2 * STEP), fifth << (3 - 2 * STEP))
        };
        [
            word & 0x0f0f_0f0f | low & 0x1010_1010,
            word >> 4 & 0x0f0f_0f0f | high & 0x1010_1010,
        ]
    }

    /// Four steps of at most 32·31·128, times 63.
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
