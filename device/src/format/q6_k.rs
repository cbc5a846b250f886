//! Q6_K: 256 6-bit weights in sixteen sub-blocks, `w = d·scale·(q − 32)`. 210 bytes, aligned to 2.

use super::piece::{Cursor, Piece, Pieces};
use super::{Format, bytes, map, u16_at, u32_at_even};
use crate::num::half;

/// 6-bit weights in blocks of 256.
pub struct Q6K;

impl Format for Q6K {
    const BLOCK: u32 = 256;
    const BYTES: u32 = 210;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (half_block, quarter, l) = (k / 16, k / 4 % 4, 8 * (k % 4));
            let four = |i: u32| {
                let low = u32_at_even(block, 64 * half_block + 32 * (quarter & 1) + l + i) >> (4 * (quarter / 2));
                let high = u32_at_even(block, 128 + 32 * half_block + l + i) >> (2 * quarter);
                low & 0x0f0f_0f0f | (high & 0x0303_0303) << 4
            };
            let scale = f32::from(block.add(192 + k as usize / 2).cast::<i8>().read());
            let d = half(u16_at(block, 208));
            map(bytes(four(0), four(4)), |q| d * scale * (q - 32.0))
        }
    }
}

impl Pieces for Q6K {
    const RUNS: [u32; 4] = [0, 32, 64, 96];
    const MASK: u32 = 63;
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
        let low = |half: u32| {
            block
                .past(64 * half_block + 32 * half + 8 * quarter)
                .words_anywhere::<2>()
        };
        let low = [low(0), low(1)];
        let high = block.past(128 + 32 * half_block + 8 * quarter).words_anywhere::<2>();
        let word = |run: usize, i: usize| {
            low[run % 2][i] >> (4 * (run / 2)) & 0x0f0f_0f0f | (high[i] >> (2 * run) & 0x0303_0303) << 4
        };
        let scales = block.past(192 + 8 * half_block).words_anywhere::<2>();
        let scales = scales.map(|word| word >> (8 * (quarter / 2)));
        let d = block.past(208).half();
        let scale = |run: usize| {
            let d = d * f32::from((scales[run / 2] >> (16 * (run % 2))) as i8);
            [d, -32.0 * d]
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
