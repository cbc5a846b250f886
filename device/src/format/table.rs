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

/// The steps of IQ4 as bytes to be added.
pub(super) const IQ4_STEPS: Steps = Steps::new(&IQ4_TABLE);
/// The doubled steps of FP4 as bytes to be added.
pub(super) const FP4_STEPS: Steps = Steps::new(&FP4_TABLE);

/// A table of sixteen signed bytes as two of eight for `prmt`, one for codes below 8, one for the others. A code's low
/// three bits are the index in both; its top bit, which `prmt` takes for "the byte's sign, eight times", makes −1 of a
/// negative byte and 0 of another one in the table that is not asked. The other table's byte has that taken off already,
/// and the two are added by being multiplied one after the other.
#[derive(Clone, Copy)]
pub(super) struct Steps([[u32; 2]; 2]);

impl Steps {
    const fn new(steps: &[i8; 16]) -> Self {
        let (mut tables, mut i) = ([[0; 2]; 2], 0);
        while i < 8 {
            let pair = [steps[i] as i32, steps[i + 8] as i32];
            let sign = [pair[0] >> 31, pair[1] >> 31];
            let stored = [pair[0] - sign[1], pair[1] - sign[0]];
            let mut half = 0;
            while half < 2 {
                assert!(
                    stored[half] >> 31 == sign[half] && stored[half] < 128,
                    "what is taken off leaves the sign"
                );
                tables[half][i / 4] |= (stored[half] as u8 as u32) << (8 * (i % 4));
                half += 1;
            }
            i += 1;
        }
        Self(tables)
    }

    /// The tables with their first words in registers: `prmt` takes one constant, and the assembler would bring in the
    /// other anew for each look-up, unless it depends on what only a thread knows: that blocks have one layer.
    #[inline(always)]
    pub fn resident(self) -> Self {
        let zero = thread::thread_idx_z();
        Self(self.0.map(|[first, second]| [first | zero, second]))
    }

    /// Summand `LINK`, 0 or 1, of the entries of the four nibbles in the low half of `codes`.
    #[inline(always)]
    fn of_four<const LINK: usize>(self, codes: u32) -> u32 {
        let [first, second] = self.0[LINK];
        permute_bytes(first, second, if LINK == 0 { codes } else { codes ^ 0x8888_8888 })
    }

    /// Summand `LINK` of the entries of both halves' nibbles.
    #[inline(always)]
    pub fn of<const LINK: usize>(self, codes: [u32; 2]) -> [u32; 2] {
        codes.map(|codes| self.of_four::<LINK>(codes))
    }
}

/// The first column of a lane's four, where those of a word are low and high nibbles alternately, sixteen columns apart.
#[inline(always)]
pub(super) fn first_column(number: u32, half: u32, t: u32) -> u32 {
    32 * number + 4 * t + 2 * half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_in_every_place_has_its_step() {
        for (table, steps) in [(IQ4_STEPS, IQ4_TABLE), (FP4_STEPS, FP4_TABLE)] {
            for word in (0..64u32).map(|i| i.wrapping_mul(0x9e37_79b9)) {
                let summands = [table.of::<0>([word, word >> 16]), table.of::<1>([word, word >> 16])];
                let summands = summands.map(|words| words.map(|word| word.to_le_bytes().map(|b| b as i8)));
                for i in 0..8 {
                    let nibble = (word >> (4 * i) & 15) as usize;
                    let sum = summands[0][i / 4][i % 4] + summands[1][i / 4][i % 4];
                    assert_eq!(sum, steps[nibble], "{word:x}, {i}");
                }
            }
        }
    }
}
