//! Q2_K: 256 2-bit weights in sixteen sub-blocks, `w = d·scale·q − dmin·min` with 4-bit scales. 84 bytes, aligned to 4.

use super::piece::{Cursor, Piece, Pieces};
use super::{Format, bytes, map, u16_at, u32_at};
use crate::num::half;

/// 2-bit weights in blocks of 256.
pub struct Q2K;

impl Format for Q2K {
    const BLOCK: u32 = 256;
    const BYTES: u32 = 84;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let (half_block, quarter, l) = (k / 16, k / 4 % 4, 8 * (k % 4));
            let packed = u32::from(block.add(k as usize / 2).read());
            let scale = half(u16_at(block, 80)) * (packed & 15) as f32;
            let min = half(u16_at(block, 82)) * (packed >> 4) as f32;
            let four = |i: u32| u32_at(block, 16 + 32 * half_block + l + i) >> (2 * quarter) & 0x0303_0303;
            map(bytes(four(0), four(4)), |q| scale * q - min)
        }
    }
}

impl Pieces for Q2K {
    const RUNS: [u32; 4] = [0, 32, 64, 96];
    const SHIFTS: [u32; 4] = [0, 2, 4, 6];
    const MASK: u32 = 3;
    const ALIKE: usize = 1;

    #[inline(always)]
    fn first_column(piece: u32) -> u32 {
        128 * (piece / 4) + 8 * (piece % 4)
    }

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, k) = Self::block_of(row, piece);
        let (half_block, quarter) = (k / 4, k % 4);
        let scales = block.past(8 * half_block).words::<2>();
        let scales = scales.map(|word| word >> (8 * (quarter / 2)));
        let factors = block.past(80).word();
        let (d, dmin) = (half(factors & 0xffff), -half(factors >> 16));
        let scale = |run: usize| {
            let packed = scales[run / 2] >> (16 * (run % 2));
            [d * (packed & 15) as f32, dmin * (packed >> 4 & 15) as f32]
        };
        Piece {
            words: [block.past(16 + 32 * half_block + 8 * quarter).words(); 4],
            scales: [scale(0), scale(1), scale(2), scale(3)],
        }
    }
}
