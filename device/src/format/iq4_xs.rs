//! IQ4_XS: 256 nibbles that index a table of steps, in eight sub-blocks, `w = d·(scale − 32)·T[q]` with 6-bit scales.
//! 136 bytes, aligned to 8.

use super::cursor::Cursor;
use super::fragment::{Fragments, signed_byte};
use super::{Format, half_split, map, table, u16_at};
use crate::num::half;
use cuda_std::prelude::*;

/// 4-bit non-linear weights in blocks of 256.
pub struct Iq4Xs;

impl Format for Iq4Xs {
    const BLOCK: u32 = 256;
    const BYTES: u32 = 136;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let j = k / 4;
            let low = u32::from(block.add(4 + j as usize / 2).read()) >> (4 * (j & 1)) & 15;
            let scale = low | (u16_at(block, 2) >> (2 * j) & 3) << 4;
            let d = half(u16_at(block, 0)) * (scale as f32 - 32.0);
            map(
                table::look_up(table::IQ4, half_split::nibbles(block, 8 + 16 * j, k % 4)),
                |t| d * t,
            )
        }
    }
}

/// What a lane needs of a block.
#[derive(Clone, Copy)]
pub struct Part {
    /// Two bytes each.
    nibbles: [[u32; 2]; 8],
    /// Scales as signed bytes, four times too large: those of even sub-blocks, and of odd ones.
    scales: [u32; 2],
    d: f32,
}

impl Fragments for Iq4Xs {
    const STEPS: usize = 8;
    const LINKS: usize = 2;
    const TWICE: bool = true;
    const SIGNED: bool = true;
    const SPREAD: u32 = 16;
    const WHOLE: bool = true;
    /// Scales are 4 times too large.
    const UNIT: f32 = 0.25;
    type Part = Part;

    #[inline(always)]
    fn first_column(number: u32, half: u32, t: u32) -> u32 {
        table::first_column(number, half, t)
    }

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        let mut nibbles = [[0; 2]; 8];
        unroll!(for I in 0..8 {
            nibbles[I] = block.past(8 + 16 * I as u32 + 4 * t).shorts();
        });
        let (head, low) = (block.word(), block.past(4).word());
        // The upper bits of two neighbours in each byte. Less 32 is the uppermost bit turned, as a sign.
        let pairs = dot::permute_bytes(head, 0, 0x4342);
        let high = (pairs | pairs << 4) & 0x0f0f_0f0f ^ 0x0a0a_0a0a;
        let scales = |nibbles: u32, bits: u32| nibbles & 0x3c3c_3c3c | bits & 0xc0c0_c0c0;
        Part {
            nibbles,
            scales: [scales(low << 2, high << 6), scales(low >> 2, high << 4)],
            d: half(head & 0xffff),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        table::IQ4_STEPS.resident().of::<LINK>(part.nibbles[STEP])
    }

    /// Eight steps of at most 16·127·128, times 4·32.
    #[inline(always)]
    fn factor<const STEP: usize>(part: &Part) -> i32 {
        signed_byte(part.scales[STEP % 2], STEP as u32 / 2)
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [part.d, 0.0]
    }
}
