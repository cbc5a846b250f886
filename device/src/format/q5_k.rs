//! Q5_K: as Q4_K with a fifth bit for each weight, `w = d·scale·q − dmin·min`. 176 bytes, aligned to 16.

use super::piece::{Cursor, Piece, Pieces, halves_with};
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

impl Pieces for Q5K {
    const RUNS: [u32; 4] = [0, 8, 32, 40];
    const MASK: u32 = 31;
    const CLEAN: bool = true;
    const ALIKE: usize = 2;

    #[inline(always)]
    fn first_column(piece: u32) -> u32 {
        64 * (piece / 2) + 16 * (piece % 2)
    }

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, k) = Self::block_of(row, piece);
        let fifth = block.past(16 + 16 * (k % 2)).vector().map(|word| word >> (k & 6));
        let fifth = [
            fifth.map(|word| word << 4 & 0x1010_1010),
            fifth.map(|word| word << 3 & 0x1010_1010),
        ];
        let pair = |half: usize, i: usize| [fifth[half][i], fifth[half][i + 1]];
        Piece {
            words: halves_with(
                block.past(48 + 16 * k).vector(),
                [pair(0, 0), pair(0, 2), pair(1, 0), pair(1, 2)],
            ),
            scales: k_quant::scales(block.vector(), k / 2),
        }
    }
}
