//! The two quantised forms of an activation vector.
//!
//! **16-bit** ([`Wide`]), for tensor cores: `x = s·(256·hi + lo)` with one scale a record of 256 columns, hi and lo signed
//! bytes in neighbouring columns of the B operand. Nothing visible is lost against f32 weights of 4…6 bits: the step is
//! 1/32,512 of the largest value. A record is [`Wide::BYTES`]:
//!
//! | bytes | content |
//! |---|---|
//! | `16·lane + 4·r` | B fragment word r = 2s + h of lane (n, t) = (lane / 4, lane % 4): the hi (n even) or lo (n odd) bytes of columns 16·(2·⌊n/2⌋ + 8s + h) + 4t … +3 |
//! | `512 + 4·j` | i32 sum of the 16-bit values of columns 32j … 32j+31 |
//! | `544` | f32 scale s; the rest is padding |
//!
//! **8-bit** ([`Narrow`]), for dp4a: one scale per 32 columns, `x = d·q`. A record of 256 columns is [`Narrow::BYTES`]:
//! 256 signed bytes, then eight pairs of f32 `(d, d·Σq)`.

/// Columns of a record of either form.
pub const RECORD_COLUMNS: usize = 256;

/// The 16-bit form.
pub struct Wide;

impl Wide {
    /// Bytes of a record.
    pub const BYTES: usize = 576;
    /// Offset of the sums of 32 columns.
    pub const SUMS: usize = 512;
    /// Offset of the scale.
    pub const SCALE: usize = 544;
    /// The largest quantised magnitude: hi = 127, lo = 0.
    pub const MAX: f32 = 32512.0;

    /// Bytes of a vector of `columns` values.
    pub const fn vector_bytes(columns: usize) -> usize {
        columns.div_ceil(RECORD_COLUMNS) * Self::BYTES
    }

    /// Where a record keeps the hi byte of column `c`; the lo byte lies [`Self::LO`] further.
    pub const fn byte_of(c: usize) -> usize {
        let (sixteen, t, j) = (c / 16, c % 16 / 4, c % 4);
        let (s, pair, half) = (sixteen / 8, sixteen % 8 / 2, sixteen % 2);
        16 * (8 * pair + t) + 4 * (2 * s + half) + j
    }

    /// Distance from a column's hi byte to its lo byte: the next column of B.
    pub const LO: usize = 64;
}

/// The 8-bit form.
pub struct Narrow;

impl Narrow {
    /// Bytes of a record.
    pub const BYTES: usize = 320;
    /// Offset of the `(d, d·Σq)` pairs.
    pub const SCALES: usize = 256;

    /// Bytes of a vector of `columns` values.
    pub const fn vector_bytes(columns: usize) -> usize {
        columns.div_ceil(RECORD_COLUMNS) * Self::BYTES
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::{Narrow, RECORD_COLUMNS, Wide};
    use crate::layout::bytes::{set_word, word};

    fn float(record: &[u8], at: usize) -> f32 {
        f32::from_bits(word(record, at))
    }

    /// The largest magnitude of `x`.
    fn largest(x: &[f32]) -> f32 {
        x.iter().fold(0.0, |m, v| m.max(v.abs()))
    }

    impl Wide {
        /// The quantised vector, as the kernels make it; the tail of the last record is zero.
        pub fn quantize(x: &[f32]) -> Vec<u8> {
            let mut out = vec![0; Self::vector_bytes(x.len())];
            for (x, record) in x.chunks(RECORD_COLUMNS).zip(out.chunks_exact_mut(Self::BYTES)) {
                let max = largest(x);
                let inverse = if max > 0.0 { Self::MAX / max } else { 0.0 };
                set_word(record, Self::SCALE, (max * (1.0 / Self::MAX)).to_bits());
                for (c, v) in x.iter().enumerate() {
                    Self::set(record, c, (v * inverse).round_ties_even() as i32);
                }
            }
            out
        }

        fn set(record: &mut [u8], c: usize, q: i32) {
            let lo = q as i8;
            record[Self::byte_of(c)] = ((q - i32::from(lo)) >> 8) as u8;
            record[Self::byte_of(c) + Self::LO] = lo as u8;
            let sum = Self::SUMS + c / 32 * 4;
            set_word(record, sum, (word(record, sum) as i32 + q) as u32);
        }

        /// The 16-bit value of column `c` of a record.
        pub fn value(record: &[u8], c: usize) -> i32 {
            let byte = |at: usize| i32::from(record[at] as i8);
            256 * byte(Self::byte_of(c)) + byte(Self::byte_of(c) + Self::LO)
        }

        /// The vector that the records stand for.
        pub fn dequantize(records: &[u8], columns: usize) -> Vec<f64> {
            let record = |c: usize| &records[c / RECORD_COLUMNS * Self::BYTES..][..Self::BYTES];
            let value = |c: usize| f64::from(Self::value(record(c), c % RECORD_COLUMNS));
            (0..columns)
                .map(|c| f64::from(float(record(c), Self::SCALE)) * value(c))
                .collect()
        }
    }

    impl Narrow {
        /// The quantised vector, as the kernels make it; the tail of the last record is zero.
        pub fn quantize(x: &[f32]) -> Vec<u8> {
            let mut out = vec![0; Self::vector_bytes(x.len())];
            for (x, record) in x.chunks(RECORD_COLUMNS).zip(out.chunks_exact_mut(Self::BYTES)) {
                for (j, x) in x.chunks(32).enumerate() {
                    Self::set(record, j, x);
                }
            }
            out
        }

        fn set(record: &mut [u8], j: usize, x: &[f32]) {
            let max = largest(x);
            let inverse = if max > 0.0 { 127.0 / max } else { 0.0 };
            let (d, mut sum) = (max * (1.0 / 127.0), 0);
            for (i, v) in x.iter().enumerate() {
                let q = (v * inverse).round_ties_even() as i32;
                record[32 * j + i] = q as u8;
                sum += q;
            }
            set_word(record, Self::SCALES + 8 * j, d.to_bits());
            set_word(record, Self::SCALES + 8 * j + 4, (d * sum as f32).to_bits());
        }

        /// The vector that the records stand for.
        pub fn dequantize(records: &[u8], columns: usize) -> Vec<f64> {
            let record = |c: usize| &records[c / RECORD_COLUMNS * Self::BYTES..][..Self::BYTES];
            let scale = |c: usize| f64::from(float(record(c), Self::SCALES + c % RECORD_COLUMNS / 32 * 8));
            (0..columns)
                .map(|c| scale(c) * f64::from(record(c)[c % RECORD_COLUMNS] as i8))
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_bytes_have_places_of_their_own() {
        let mut seen = [false; 512];
        for c in 0..RECORD_COLUMNS {
            for at in [Wide::byte_of(c), Wide::byte_of(c) + Wide::LO] {
                assert!(!std::mem::replace(&mut seen[at], true), "column {c}");
            }
        }
    }

    #[test]
    fn both_forms_give_the_vector_back_within_half_a_step() {
        let x = crate::testing::floats(3, 700, 4.0);
        let (wide, narrow) = (Wide::quantize(&x), Narrow::quantize(&x));
        let (w, n) = (Wide::dequantize(&wide, 700), Narrow::dequantize(&narrow, 700));
        for (c, v) in x.iter().enumerate() {
            let most = |step: usize| x[c / step * step..].iter().take(step).fold(0f32, |m, v| m.max(v.abs()));
            assert!(
                (w[c] - f64::from(*v)).abs() <= f64::from(most(256)) * 0.501 / 32512.0,
                "column {c}"
            );
            assert!(
                (n[c] - f64::from(*v)).abs() <= f64::from(most(32)) * 0.501 / 127.0,
                "column {c}"
            );
        }
    }
}
