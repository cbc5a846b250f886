//! Q4_K: 256 nibbles in eight sub-blocks, `w = d·scale·q − dmin·min`. 144 bytes, aligned to 16.

use super::piece::{Cursor, Piece, Pieces, halves};
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

impl Pieces for Q4K {
    const RUNS: [u32; 4] = [0, 8, 32, 40];
    const SHIFTS: [u32; 4] = [0, 0, 4, 4];
    const MASK: u32 = 15;
    const ALIKE: usize = 2;

    #[inline(always)]
    fn first_column(piece: u32) -> u32 {
        64 * (piece / 2) + 16 * (piece % 2)
    }

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, k) = Self::block_of(row, piece);
        Piece {
            words: halves(block.past(16 + 16 * k).vector()),
            scales: k_quant::scales(block.vector(), k / 2),
        }
    }
}
