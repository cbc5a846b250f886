//! Types whose four bits index a table of sixteen signed bytes. The table is two constants and a shift: no memory.

use super::map_index;
use cuda_std::dot::permute_bytes;
use cuda_std::thread;
use sparkinfer_gguf::blocks::{FP4_TABLE, IQ4_TABLE};

/// A table of sixteen signed bytes, lowest first.
type Table = [u64; 2];

const fn packed(values: &[i8; 16]) -> Table {
    let (mut table, mut i) = ([0u64; 2], 0);
    while i < 16 {
        table[i / 8] |= (values[i] as u8 as u64) << (8 * (i % 8));
        i += 1;
    }
    table
}

/// The non-linear 4-bit steps of IQ4_NL and IQ4_XS.
pub(super) const IQ4: Table = packed(&IQ4_TABLE);
/// Twice the E2M1 values of MXFP4 and NVFP4.
pub(super) const FP4: Table = packed(&FP4_TABLE);

/// The table's values for the nibbles (one a byte) of two words.
#[inline(always)]
pub(super) fn look_up(table: Table, nibbles: [u32; 2]) -> [f32; 8] {
    map_index(nibbles, |n| {
        let half = if n < 8 { table[0] } else { table[1] };
        f32::from((half >> (8 * (n & 7))) as i8)
    })
}

/// What IQ4 steps are raised by as bytes.
pub(super) const IQ4_RAISED: f32 = 128.0;
/// What doubled FP4 steps are raised by as bytes.
pub(super) const FP4_RAISED: f32 = 12.0;
/// The steps of IQ4 as unsigned bytes.
pub(super) const IQ4_BYTES: Bytes = Bytes::new(&IQ4_TABLE, IQ4_RAISED as i16);
/// The doubled steps of FP4 as unsigned bytes.
pub(super) const FP4_BYTES: Bytes = Bytes::new(&FP4_TABLE, FP4_RAISED as i16);

/// A table of sixteen bytes as two of eight for `prmt`: even entries and odd ones. A code's top three bits are the index in
/// both; its lowest chooses, as the top bit of a selector, which there means "the byte's sign, eight times". An exclusive
/// or takes that away again, because an even entry and the next have the same top bit and the odd one lies here turned
/// over where it is set.
pub(super) struct Bytes {
    even: [u32; 2],
    odd: [u32; 2],
}

impl Bytes {
    const fn new(steps: &[i8; 16], raised: i16) -> Self {
        let (mut even, mut odd, mut i) = ([0; 2], [0; 2], 0);
        while i < 8 {
            let (a, b) = (
                (steps[2 * i] as i16 + raised) as u8,
                (steps[2 * i + 1] as i16 + raised) as u8,
            );
            assert!(a >> 7 == b >> 7, "an even step and the next differ in their top bits");
            let b = if b >> 7 == 1 { !b } else { b };
            even[i / 4] |= (a as u32) << (8 * (i % 4));
            odd[i / 4] |= (b as u32) << (8 * (i % 4));
            i += 1;
        }
        Self { even, odd }
    }

    /// The entries of four nibbles: the low half of `codes`, each turned right by one bit; `turned` has their top bits
    /// the other way.
    #[inline(always)]
    fn four(&self, codes: u32, turned: u32) -> u32 {
        permute_bytes(self.even[0], self.even[1], codes) ^ permute_bytes(self.odd[0], self.odd[1], turned)
    }

    /// The entries of all nibbles of a word: those of the lowest four, and of the others.
    #[inline(always)]
    pub fn look_up(&self, word: u32) -> [u32; 2] {
        let codes = word >> 1 & 0x7777_7777 | word << 3 & 0x8888_8888;
        let turned = codes ^ 0x8888_8888;
        [self.four(codes, turned), self.four(codes >> 16, turned >> 16)]
    }

    /// The table with its first words in registers: `prmt` takes one constant, and the assembler would bring in the other
    /// anew for each look-up, unless it depends on what only a thread knows: that blocks have one layer.
    #[inline(always)]
    pub fn resident(&self) -> Self {
        let zero = thread::thread_idx_z();
        Self {
            even: [self.even[0] | zero, self.even[1]],
            odd: [self.odd[0] | zero, self.odd[1]],
        }
    }
}

/// The entries of sixteen bytes' nibbles: those of a word are a run's words, low and high nibbles alternately.
#[inline(always)]
pub(super) fn halves(words: [u32; 4], table: Bytes) -> [[u32; 2]; 4] {
    words.map(|word| table.look_up(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_in_every_place_has_its_byte() {
        for (table, steps, raised) in [(IQ4_BYTES, IQ4_TABLE, 128), (FP4_BYTES, FP4_TABLE, 12)] {
            for word in (0..64u32).map(|i| i.wrapping_mul(0x9e37_79b9)) {
                let found = table.look_up(word).map(u32::to_le_bytes);
                for i in 0..8 {
                    let nibble = (word >> (4 * i) & 15) as usize;
                    assert_eq!(
                        i16::from(found[i / 4][i % 4]),
                        i16::from(steps[nibble]) + raised,
                        "{word:x}, {i}"
                    );
                }
            }
        }
    }
}
