//! NVFP4: 64 E2M1 values, one unsigned E4M3 scale for each 16. 36 bytes, aligned to 4. The scale of the whole tensor,
//! if there is one, multiplies the result of the product and is not applied here.

use super::piece::{Cursor, Piece, Pieces};
use super::{Format, map, table, u32_at};
use crate::num::half;
use crate::tile::nvfp4::{SCALE, numbers};
use sparkinfer_gguf::blocks::ue4m3_half;

/// 4-bit floats with a float scale for each 16, in blocks of 64.
pub struct Nvfp4;

impl Format for Nvfp4 {
    const BLOCK: u32 = 64;
    const BYTES: u32 = 36;

    #[inline(always)]
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8] {
        // SAFETY: the caller's.
        unsafe {
            let (block, k) = Self::block(row, piece);
            let d = ue4m3_half(block.add(k as usize / 2).read());
            // Sixteen columns are eight bytes: low nibbles the first eight columns, high nibbles the rest.
            let four = |i: u32| u32_at(block, 4 + 8 * (k / 2) + i) >> (4 * (k & 1)) & 0x0f0f_0f0f;
            map(table::look_up(table::FP4, [four(0), four(4)]), |t| d * t)
        }
    }
}

impl Pieces for Nvfp4 {
    const RUNS: [u32; 4] = [0, 16, 8, 24];
    const MASK: u32 = 31;
    const CLEAN: bool = true;
    const ALIKE: usize = 2;
    const ALTERNATE: bool = true;

    #[inline(always)]
    fn load(row: Cursor, piece: u32) -> Piece {
        let (block, j) = Self::block_of(row, piece);
        let bits = numbers(block.word()) >> (16 * j);
        let (first, second) = (SCALE * half((bits & 127) << 7), SCALE * half((bits & 0x7f00) >> 1));
        let scale = |d: f32| [d, -table::FP4_RAISED * d];
        Piece {
            words: table::halves(block.past(4 + 16 * j).words(), table::FP4_BYTES.resident()),
            scales: [scale(first), scale(first), scale(second), scale(second)],
        }
    }
}
