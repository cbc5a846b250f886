//! Q3_K: 256 3-bit weights in sixteen sub-blocks, `w = d·(scale − 32)·(q − 4)` with 6-bit scales; the third bits lie
//! apart. 110 bytes, aligned to 2.

use super::piece::{Cursor, Piece, Pieces};
use super::{Format, bytes, map, u16_at, u32_at_even};
use crate::num::half;

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

impl Pieces for Q3K {
    const RUNS: [u32; 4] = [0, 32, 64, 96];
    const MASK: u32 = 7;
    const CLEAN: bool = true;
    const ALIKE: usize = 1;

    #[inline(always)]
    fn first_column(piece: u32) -> u32 {
        128 * (piece / 4) + 8 * (piece % 4)
    }

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, k) = Self::block_of(row, piece);
        let (half_block, quarter) = (k / 4, k % 4);
        let low = block.past(32 + 32 * half_block + 8 * quarter).words_anywhere::<2>();
        let third = block.past(8 * quarter).words_anywhere::<2>();
        let third = third.map(|word| word >> (4 * half_block));
        let word = |run: usize, i: usize| low[i] >> (2 * run) & 0x0303_0303 | (third[i] >> run & 0x0101_0101) << 2;
        let packed = block.past(96).words_anywhere::<3>();
        let packed = packed.map(|word| word >> (8 * (quarter / 2)));
        let d = block.past(108).half();
        let scale = |run: usize| {
            let low = packed[run / 2] >> (16 * (run % 2)) >> (4 * half_block) & 15;
            let high = packed[2] >> (4 * half_block) >> (16 * (run % 2) + 2 * (run / 2)) & 3;
            let d = d * ((low | high << 4) as f32 - 32.0);
            [d, -4.0 * d]
        };
        Piece {
            words: [
                [word(0, 0), word(0, 1)],
                [word(1, 0), word(1, 1)],
                [word(2, 0), word(2, 1)],
                [word(3, 0), word(3, 1)],
            ],
            scales: [scale(0), scale(1), scale(2), scale(3)],
        }
    }
}
