//! Q3_K: 256 3-bit weights in sixteen sub-blocks, `w = d·(scale − 32)·(q − 4)` with 6-bit scales; the third bits lie
//! apart. 110 bytes, aligned to 2.

use super::cursor::Cursor;
use super::fragment::{Fragments, Term, signed_byte};
use super::{Format, bytes, map, u16_at, u32_at_even};
use crate::num::half;
use cuda_std::prelude::*;

/// 3-bit weights in blocks of 256.
pub struct Q3K;

impl Format for Q3K {
    const BLOCK: u32 = 256;
    const BYTES: u32 = 110;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (half_block, quarter, l) = (k / 16, k / 4 % 4, 8 * (k % 4));
            let four = |i: u32| {
                let low = u32_at_even(block, 32 + 32 * half_block + l + i) >> (2 * quarter) & 0x0303_0303;
                low | (u32_at_even(block, l + i) >> (4 * half_block + quarter) & 0x0101_0101) << 2
            };
            let d = half(u16_at(block, 108)) * (scale(block, k / 2) as f32 - 32.0);
            map(bytes(four(0), four(4)), |q| d * (q - 4.0))
        }
    }
}

/// The 6-bit scale of sub-block `j`: a nibble of the first eight bytes, two bits of the last four.
///
/// # Safety
/// `block` points to a whole block.
#[inline(always)]
unsafe fn scale(block: *const u8, j: u32) -> u32 {
    // SAFETY: the caller's.
    let byte = |i: u32| u32::from(unsafe { block.add(96 + i as usize).read() });
    let low = byte(j % 8) >> (4 * (j / 8)) & 15;
    low | (byte(8 + j % 4) >> (2 * (j / 4)) & 3) << 4
}

/// What a lane needs of a block: of both halves of its 256 columns, and of both halves of a product's 32.
#[derive(Clone, Copy)]
pub struct Part {
    low: [[u32; 2]; 2],
    third: [u32; 2],
    /// Scales of the lane's half as signed bytes, four times too large: of steps 0 to 3, and 4 to 7.
    scales: [u32; 2],
    d: f32,
}

/// Bits below a weight's in its byte, by the quarter of 128 columns that it is in.
const BELOW: [usize; 4] = [0, 2, 4, 4];

impl Fragments for Q3K {
    const STEPS: usize = 8;
    const TERM: Term = Term::Scaled;
    /// 4, and steps are 2⁴ times too large.
    const OFFSET: i32 = 4 << 4;
    const WHOLE: bool = true;
    const BY_ALIGNMENT: bool = true;
    /// Scales are 4 times too large, steps 2⁴ times.
    const UNIT: f32 = 1.0 / 64.0;
    type Part = Part;

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        let (mut low, mut packed) = ([[0; 2]; 2], [0; 3]);
        unroll!(for I in 0..4 {
            low[I / 2][I % 2] = block.past(32 + 16 * I as u32 + 4 * t).word_even();
        });
        unroll!(for I in 0..3 {
            packed[I] = block.past(96 + 4 * I as u32).word_even();
        });
        let third = block.past(4 * t);
        // A step's two scales lie side by side.
        let own = |a: u32, b: u32| dot::permute_bytes(a, b, 0x6420 + 0x1111 * (t / 2));
        let [a, b, high] = packed;
        // Two steps' upper bits in bits 2 and 3, two later ones' in 6 and 7. Less 32 is the uppermost bit turned, as a sign.
        let (nibbles, high) = (own(a, b), own(high << 2, high) ^ 0x8888_8888);
        let scales = |nibbles: u32, bits: u32| nibbles & 0x3c3c_3c3c | bits & 0xc0c0_c0c0;
        Part {
            low,
            third: [third.word_even(), third.past(16).word_even()],
            scales: [scales(nibbles << 2, high << 4), scales(nibbles >> 2, high)],
            d: block.past(108).half(),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        let below = BELOW[STEP % 4];
        let byte = |i: usize| {
            let low = part.low[STEP / 4][i] >> (2 * (STEP % 4) - below);
            let third = if below + 2 > STEP {
                part.third[i] << (below + 2 - STEP)
            } else {
                part.third[i] >> (STEP - below - 2)
            };
            low & 0x0303_0303 << below | third & 0x0404_0404 << below
        };
        [byte(0), byte(1)]
    }

    #[inline(always)]
    fn scales(part: &Part) -> [u32; 2] {
        part.scales
    }

    /// Eight steps of at most 16·7·128, times 4·32·2⁴, and sixteen offsets of 4·2⁴·16·128, times 4·32.
    #[inline(always)]
    fn factor<const STEP: usize>(part: &Part) -> i32 {
        signed_byte(part.scales[STEP / 4], STEP as u32 % 4) << (4 - BELOW[STEP % 4])
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [part.d, 0.0]
    }
}
