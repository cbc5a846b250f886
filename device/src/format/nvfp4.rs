//! NVFP4: 64 E2M1 values, one unsigned E4M3 scale for each 16. 36 bytes, aligned to 4. The scale of the whole tensor,
//! if there is one, multiplies the result of the product and is not applied here.

use super::cursor::Cursor;
use super::fragment::Fragments;
use super::{Format, map, table, u32_at};
use crate::num::half;
use crate::tile::nvfp4::SCALE;
use cuda_std::prelude::*;
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

/// The seven bits each of scales `half` and `2 + half` of four, as those of an f16 and the next; 0x7f is no number and
/// counts as 0.
#[inline(always)]
fn halves(scales: u32, half: u32) -> u32 {
    // One more sets the top bit of 0x7f alone; `prmt` makes sixteen bits of it.
    let next = (scales & 0x7f7f_7f7f) + 0x0101_0101;
    let other = dot::permute_bytes(next, next, 0xaa88 + 0x1111 * half);
    scales.rotate_left(7 + 24 * half) & 0x3f80_3f80 & !other
}

/// What a lane needs of a block.
#[derive(Clone, Copy)]
pub struct Part {
    /// Two bytes of each sub-block.
    nibbles: [[u32; 2]; 2],
    /// The scales of every other sub-block as f16.
    scales: u32,
}

impl Fragments for Nvfp4 {
    const STEPS: usize = 2;
    const LINKS: usize = 2;
    const TWICE: bool = true;
    const SIGNED: bool = true;
    const SPREAD: u32 = 8;
    const UNIT: f32 = SCALE;
    const TOGETHER: u32 = 4;
    type Part = Part;

    #[inline(always)]
    fn first_column(number: u32, half: u32, t: u32) -> u32 {
        32 * number + 16 * half + 2 * t
    }

    #[inline(always)]
    fn load(block: Cursor, t: u32) -> Part {
        let mut nibbles = [[0; 2]; 2];
        unroll!(for I in 0..4 {
            nibbles[I / 2][I % 2] = block.past(4 + 8 * I as u32 + 2 * t).short();
        });
        Part {
            nibbles,
            scales: halves(block.word(), t / 2),
        }
    }

    #[inline(always)]
    fn bytes<const STEP: usize, const LINK: usize>(part: &Part) -> [u32; 2] {
        table::FP4_STEPS.resident().of::<LINK>(part.nibbles[STEP])
    }

    #[inline(always)]
    fn scale<const STEP: usize>(part: &Part) -> [f32; 2] {
        [half(part.scales >> (16 * STEP) & 0xffff), 0.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_but_one_are_numbers() {
        for byte in 0..=255 {
            let number = if byte & 127 == 127 { 0 } else { byte & 127 };
            for half in 0..2 {
                assert_eq!(halves(byte * 0x0101_0101, half), number * 0x80_0080, "{byte}");
            }
        }
        assert_eq!(halves(0x7f01_fe7f, 0), 0x0080_0000);
        assert_eq!(halves(0x7f01_fe7f, 1), 0x0000_3f00);
    }
}
