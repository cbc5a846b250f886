//! The parts that the tiles of types with a code book share: four bits that stand for one of sixteen steps.
//!
//! The kernel looks steps up with `prmt`, which takes four selectors of four bits from the low half of a word. So the four
//! codes of an A register lie side by side in 16 bits, the registers of two products share a word, and the vectors begin
//! the tile as in [`nibbles`](super::nibbles).

use super::bytes::{set_word, word};

/// Where four codes lie: vector, half of the word, and offset of the word in the vector.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub vector: usize,
    pub upper: usize,
    pub word: usize,
}

impl Place {
    fn at(self) -> usize {
        512 * self.vector + self.word
    }
}

/// Four codes, one a byte, as sixteen bits.
const fn packed(four: u32) -> u32 {
    let pairs = four & 0x000f_000f | four >> 4 & 0x00f0_00f0;
    pairs & 0xff | pairs >> 8 & 0xff00
}

/// The inverse of [`packed`].
const fn unpacked(bits: u32) -> u32 {
    let pairs = bits & 0xff | (bits & 0xff00) << 8;
    pairs & 0x000f_000f | (pairs & 0x00f0_00f0) << 4
}

/// Sets the four codes of a place, one a byte of `four`.
pub(super) fn set_codes(tile: &mut [u8], place: Place, four: u32) {
    let shift = 16 * place.upper;
    let kept = word(tile, place.at()) & (0xffff_0000 >> shift);
    set_word(tile, place.at(), kept | packed(four) << shift);
}

/// The inverse of [`set_codes`].
pub(super) fn codes(tile: &[u8], place: Place) -> u32 {
    unpacked(word(tile, place.at()) >> (16 * place.upper) & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lie_side_by_side() {
        assert_eq!(packed(0x0800_0201), 0x8021);
        for bits in [0, 0x1234, 0xffff, 0x8421, 0x5a0f] {
            assert_eq!(packed(unpacked(bits)), bits);
        }
    }
}
