//! Reference dequantisation: the meaning of every supported type, in plain f32 arithmetic.
//!
//! These functions define what is right; fast paths elsewhere are checked against them. The formulas stand with the
//! block structs in [`crate::blocks`].

use core::fmt;

use half::bf16;

use crate::blocks::{
    Block, BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockNvfp4, BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K,
    BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0, F16, FP4_TABLE, IQ4_TABLE, as_blocks, e8m0_half, half_nibble,
    scale_min, ue4m3_half,
};
use crate::types::TensorType;

/// Why a row cannot be converted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowError {
    /// The type's layout is known, its values are not.
    Unsupported(TensorType),
    /// The bytes do not hold as many values as the other side has room for.
    Length {
        /// Type of the row.
        ty: TensorType,
        /// Bytes given.
        bytes: usize,
        /// Values given or wanted.
        values: usize,
    },
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(ty) => write!(f, "tensors of type {ty} are not supported"),
            Self::Length { ty, bytes, values } => {
                write!(f, "{bytes} bytes of {ty} do not hold {values} values")
            }
        }
    }
}

impl core::error::Error for RowError {}

/// Checks that `bytes` holds exactly `values` values of type `ty`.
pub(crate) fn check_row(ty: TensorType, bytes: usize, values: usize) -> Result<(), RowError> {
    if ty.row_bytes(values) == Some(bytes) {
        Ok(())
    } else {
        Err(RowError::Length { ty, bytes, values })
    }
}

/// A block whose values are known.
pub trait Dequantize: Block {
    /// Writes the block's [`Block::LEN`] values to `out`.
    ///
    /// # Panics
    /// When `out` is shorter than the block.
    fn dequantize(&self, out: &mut [f32]);
}

/// Writes the values of a row (or of any whole number of blocks) to `out`, which they must fill exactly.
///
/// # Errors
/// [`RowError::Length`] when the sizes do not match, [`RowError::Unsupported`] for types without reference.
pub fn dequantize_row(ty: TensorType, bytes: &[u8], out: &mut [f32]) -> Result<(), RowError> {
    check_row(ty, bytes.len(), out.len())?;
    match ty {
        TensorType::F32 => numbers(bytes, out, f32::from_le_bytes),
        TensorType::F16 => numbers(bytes, out, |b| half::f16::from_le_bytes(b).to_f32()),
        TensorType::BF16 => numbers(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
        TensorType::F64 => numbers(bytes, out, |b| f64::from_le_bytes(b) as f32),
        TensorType::I8 => numbers(bytes, out, |b| f32::from(i8::from_le_bytes(b))),
        TensorType::I16 => numbers(bytes, out, |b| f32::from(i16::from_le_bytes(b))),
        TensorType::I32 => numbers(bytes, out, |b| i32::from_le_bytes(b) as f32),
        TensorType::I64 => numbers(bytes, out, |b| i64::from_le_bytes(b) as f32),
        TensorType::Q4_0 => blocks::<BlockQ4_0>(bytes, out),
        TensorType::Q4_1 => blocks::<BlockQ4_1>(bytes, out),
        TensorType::Q5_0 => blocks::<BlockQ5_0>(bytes, out),
        TensorType::Q5_1 => blocks::<BlockQ5_1>(bytes, out),
        TensorType::Q8_0 => blocks::<BlockQ8_0>(bytes, out),
        TensorType::Q2_K => blocks::<BlockQ2K>(bytes, out),
        TensorType::Q3_K => blocks::<BlockQ3K>(bytes, out),
        TensorType::Q4_K => blocks::<BlockQ4K>(bytes, out),
        TensorType::Q5_K => blocks::<BlockQ5K>(bytes, out),
        TensorType::Q6_K => blocks::<BlockQ6K>(bytes, out),
        TensorType::IQ4_NL => blocks::<BlockIq4Nl>(bytes, out),
        TensorType::IQ4_XS => blocks::<BlockIq4Xs>(bytes, out),
        TensorType::MXFP4 => blocks::<BlockMxfp4>(bytes, out),
        TensorType::NVFP4 => blocks::<BlockNvfp4>(bytes, out),
        _ => return Err(RowError::Unsupported(ty)),
    }
    Ok(())
}

/// A row of plain numbers of `N` bytes each.
fn numbers<const N: usize>(bytes: &[u8], out: &mut [f32], read: impl Fn([u8; N]) -> f32) {
    let (chunks, _) = bytes.as_chunks::<N>();
    for (value, chunk) in out.iter_mut().zip(chunks) {
        *value = read(*chunk);
    }
}

/// A row of blocks.
fn blocks<B: Dequantize>(bytes: &[u8], out: &mut [f32]) {
    for (block, values) in as_blocks::<B>(bytes)
        .unwrap_or_default()
        .iter()
        .zip(out.chunks_exact_mut(B::LEN))
    {
        block.dequantize(values);
    }
}

/// Writes `value(i)` to each `out[i]` of a block.
#[inline]
fn fill(out: &mut [f32], len: usize, value: impl Fn(usize) -> f32) {
    for (i, y) in out[..len].iter_mut().enumerate() {
        *y = value(i);
    }
}

impl Dequantize for BlockQ4_0 {
    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        fill(out, Self::LEN, |i| d * (f32::from(half_nibble(&self.qs, i)) - 8.0));
    }
}

impl Dequantize for BlockQ4_1 {
    fn dequantize(&self, out: &mut [f32]) {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        fill(out, Self::LEN, |i| d * f32::from(half_nibble(&self.qs, i)) + m);
    }
}

impl Dequantize for BlockQ5_0 {
    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        fill(out, Self::LEN, |i| d * (f32::from(self.quant(i)) - 16.0));
    }
}

impl Dequantize for BlockQ5_1 {
    fn dequantize(&self, out: &mut [f32]) {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        fill(out, Self::LEN, |i| d * f32::from(self.quant(i)) + m);
    }
}

impl Dequantize for BlockQ8_0 {
    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        fill(out, Self::LEN, |i| d * f32::from(self.qs[i]));
    }
}

impl Dequantize for BlockQ2K {
    fn dequantize(&self, out: &mut [f32]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (k, group) in out[..Self::LEN].chunks_exact_mut(16).enumerate() {
            let scale = d * f32::from(self.scales[k] & 15);
            let min = dmin * f32::from(self.scales[k] >> 4);
            fill(group, 16, |l| scale * f32::from(self.quant(16 * k + l)) - min);
        }
    }
}

impl Dequantize for BlockQ3K {
    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        for (k, group) in out[..Self::LEN].chunks_exact_mut(16).enumerate() {
            let scale = d * f32::from(self.scale(k));
            fill(group, 16, |l| scale * f32::from(self.quant(16 * k + l)));
        }
    }
}

impl Dequantize for BlockQ4K {
    fn dequantize(&self, out: &mut [f32]) {
        five_bit_groups(self.d, self.dmin, &self.scales, |j| self.group(j), out);
    }
}

impl Dequantize for BlockQ5K {
    fn dequantize(&self, out: &mut [f32]) {
        five_bit_groups(self.d, self.dmin, &self.scales, |j| self.group(j), out);
    }
}

/// The 8 groups of 32 that Q4_K and Q5_K share.
#[inline]
fn five_bit_groups(d: F16, dmin: F16, scales: &[u8; 12], quants: impl Fn(usize) -> [u8; 32], out: &mut [f32]) {
    let (d, dmin) = (d.to_f32(), dmin.to_f32());
    for (j, group) in out[..BlockQ4K::LEN].chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let quants = quants(j);
        fill(group, 32, |l| scale * f32::from(quants[l]) - min);
    }
}

impl Dequantize for BlockQ6K {
    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        for (k, group) in out[..Self::LEN].chunks_exact_mut(16).enumerate() {
            let (scale, quants) = (d * f32::from(self.scales[k]), self.group(k));
            fill(group, 16, |l| scale * f32::from(quants[l]));
        }
    }
}

impl Dequantize for BlockIq4Nl {
    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        fill(out, Self::LEN, |i| {
            d * table_value(&IQ4_TABLE, half_nibble(&self.qs, i))
        });
    }
}

impl Dequantize for BlockIq4Xs {
    fn dequantize(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        let (groups, _) = self.qs.as_chunks::<16>();
        for ((k, qs), group) in groups.iter().enumerate().zip(out[..Self::LEN].chunks_exact_mut(32)) {
            let scale = d * f32::from(self.scale(k));
            fill(group, 32, |l| scale * table_value(&IQ4_TABLE, half_nibble(qs, l)));
        }
    }
}

impl Dequantize for BlockMxfp4 {
    fn dequantize(&self, out: &mut [f32]) {
        let d = e8m0_half(self.e);
        fill(out, Self::LEN, |i| {
            d * table_value(&FP4_TABLE, half_nibble(&self.qs, i))
        });
    }
}

impl Dequantize for BlockNvfp4 {
    fn dequantize(&self, out: &mut [f32]) {
        for (s, group) in out[..Self::LEN].chunks_exact_mut(16).enumerate() {
            let d = ue4m3_half(self.d[s]);
            let qs = &self.qs[8 * s..8 * s + 8];
            fill(group, 16, |j| {
                let byte = qs[j % 8];
                d * table_value(&FP4_TABLE, if j < 8 { byte & 15 } else { byte >> 4 })
            });
        }
    }
}

/// Entry `n` (0 to 15) of a value table.
#[inline]
fn table_value(table: &[i8; 16], n: u8) -> f32 {
    f32::from(table[usize::from(n & 15)])
}

#[cfg(test)]
#[path = "dequant_tests.rs"]
mod tests;
