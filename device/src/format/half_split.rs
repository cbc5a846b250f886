//! What the types with blocks of 32 share: nibbles in halves, and fifth bits in a word.

use super::u32_at_even;

/// Two words with the four bytes each of columns `8·k` … `8·k + 7` of 32 whose nibbles are split in halves: the low
/// nibbles of 16 bytes are the first 16 columns, the high ones the rest.
///
/// # Safety
/// 16 bytes from `quants + at` on, aligned to 2.
#[inline(always)]
pub(super) unsafe fn nibbles(block: *const u8, at: u32, k: u32) -> [u32; 2] {
    let (at, shift) = (at + 8 * (k & 1), 4 * (k >> 1));
    // SAFETY: the caller's.
    let four = |i: u32| unsafe { u32_at_even(block, at + i) } >> shift & 0x0f0f_0f0f;
    [four(0), four(4)]
}

/// Bits 8k … 8k + 7 of `bits`, one a byte, in bit 4.
#[inline(always)]
pub(super) fn fifth_bits(bits: u32, k: u32) -> [u32; 2] {
    // Four bits times 1 + 2⁷ + 2¹⁴ + 2²¹: copies that do not overlap, bit i at the foot of byte i.
    let spread = |four: u32| (((four & 15) * 0x0020_4081) & 0x0101_0101) << 4;
    let byte = bits >> (8 * k);
    [spread(byte), spread(byte >> 4)]
}

/// The bytes of a lane's low and high nibbles with their fifth bits, which begin at bits 0 and 16 of `fifth`.
#[inline(always)]
pub(super) fn five_bits(word: u32, fifth: u32) -> [u32; 2] {
    // As above, four places higher.
    let spread = |four: u32| (four & 15).wrapping_mul(0x0204_0810) & 0x1010_1010;
    [
        word & 0x0f0f_0f0f | spread(fifth),
        word >> 4 & 0x0f0f_0f0f | spread(fifth >> 16),
    ]
}
