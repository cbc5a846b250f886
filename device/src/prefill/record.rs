//! How a prompt's activations lie in memory: as pairs of f16, in the order of tensor-core operands.
//!
//! A value v of a row is `2^-e · (hi + lo)`, hi = f16(2^e·v), lo = f16(2^e·v − hi), with one e a row such that the
//! largest magnitude is in [512, 1024). So 22 bits of a value are kept, and sums of 32 columns stay inside f16.
//!
//! A record is 256 columns of one row, [`Record::BYTES`]:
//!
//! | bytes | content |
//! |---|---|
//! | `64·j + 16·t` | hi of sub-block j of 32 columns, lane t's columns 16h + 4t + {0, 2} and 16h + 4t + {1, 3} for h = 0, 1: four words |
//! | `512 + 64·j + 16·t` | lo of the same |
//! | `1024 + 8·t` | sums of sub-blocks t and t + 4, divided by 32: hi pair, lo pair |
//!
//! which are the B operands of `mma.m16n8k16` for weights whose four neighbouring columns are the bytes of a word: even
//! and odd bytes are taken out together. The rest of the record is padding, so that no 64 bytes cross a line.

/// A record of 256 columns.
pub struct Record;

impl Record {
    /// Columns of a record.
    pub const COLUMNS: u32 = 256;
    /// Bytes of a record.
    pub const BYTES: usize = 1088;
    /// Distance from a column's hi to its lo.
    pub const LOW: usize = 512;
    /// Offset of the sums of sub-blocks.
    pub const SUMS: usize = 1024;

    /// Bytes of a row of `columns` columns, a multiple of 256.
    #[inline(always)]
    #[must_use]
    pub const fn row_bytes(columns: u32) -> usize {
        (columns / Self::COLUMNS) as usize * Self::BYTES
    }

    /// Bytes of a row of any number of columns: whole records, zeros behind the row's end.
    #[inline(always)]
    #[must_use]
    pub const fn whole_row_bytes(columns: u32) -> usize {
        columns.div_ceil(Self::COLUMNS) as usize * Self::BYTES
    }

    /// Offset of the hi of column `c` of a record.
    #[must_use]
    pub const fn byte_of(c: usize) -> usize {
        let (j, half, t, i) = (c / 32, c % 32 / 16, c % 16 / 4, c % 4);
        64 * j + 16 * t + 8 * half + 4 * (i & 1) + 2 * (i >> 1)
    }

    /// Offset of the hi of the sum of sub-block `j`; its lo lies 4 further.
    #[must_use]
    pub const fn sum_of(j: usize) -> usize {
        Self::SUMS + 8 * (j & 3) + 2 * (j >> 2)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Record {
    /// The values of a row's records, before the factor 2^-e.
    #[must_use]
    pub fn values(records: &[u8], columns: usize) -> Vec<f64> {
        let half = |at: usize| half::f16::from_le_bytes([records[at], records[at + 1]]).to_f64();
        let at = |c: usize| c / 256 * Self::BYTES + Self::byte_of(c % 256);
        (0..columns).map(|c| half(at(c)) + half(at(c) + Self::LOW)).collect()
    }

    /// The sums of 32 columns of a row's records, before the factor 2^-e.
    #[must_use]
    pub fn sums(records: &[u8], columns: usize) -> Vec<f64> {
        let half = |at: usize| half::f16::from_le_bytes([records[at], records[at + 1]]).to_f64();
        let at = |j: usize| j / 8 * Self::BYTES + Self::sum_of(j % 8);
        (0..columns / 32)
            .map(|j| 32.0 * (half(at(j)) + half(at(j) + 4)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_a_place_of_its_own() {
        let mut seen = vec![false; Record::BYTES];
        let columns = (0..256).flat_map(|c| [Record::byte_of(c), Record::byte_of(c) + Record::LOW]);
        let sums = (0..8).flat_map(|j| [Record::sum_of(j), Record::sum_of(j) + 4]);
        for at in columns.chain(sums) {
            assert!(!std::mem::replace(&mut seen[at], true), "byte {at}");
        }
    }
}
