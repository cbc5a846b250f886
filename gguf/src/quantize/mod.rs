//! Quantisation of rows of f32, without importance weights.
//!
//! Round-to-nearest alone wastes precision: for the K-quants every group's scale (and minimum) is chosen among several
//! candidates by its squared error, large values counting more. Any input is accepted: what is not finite gives some
//! finite quant, never a panic.

mod asymmetric;
mod float;
pub mod nvfp4;
mod q8_0;
mod symmetric;

#[cfg(test)]
mod tests;

use crate::blocks::{Block, BlockNvfp4, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0, as_blocks_mut};
use crate::dequant::{RowError, check_row};
use crate::types::TensorType;

/// A block that can be made from values.
pub trait Quantize: Block {
    /// The block closest to `values`, of which there are [`Block::LEN`] (missing ones count as zero).
    fn quantize(values: &[f32]) -> Self;
}

/// Whether [`quantize_row`] can write this type.
pub const fn can_quantize(ty: TensorType) -> bool {
    use TensorType::*;
    matches!(ty, F32 | F16 | BF16 | Q8_0 | Q4_K | Q5_K | Q6_K | NVFP4)
}

/// Quantises `values` into `out`, which they must fill exactly.
///
/// NVFP4 is written with a second scale of 1; see [`nvfp4`] for the other way.
///
/// # Errors
/// [`RowError::Length`] when the sizes do not match, [`RowError::Unsupported`] for types that are only read.
pub fn quantize_row(ty: TensorType, values: &[f32], out: &mut [u8]) -> Result<(), RowError> {
    check_row(ty, out.len(), values.len())?;
    match ty {
        TensorType::F32 => float::numbers(values, out, f32::to_le_bytes),
        TensorType::F16 => float::numbers(values, out, |v| half::f16::from_f32(v).to_le_bytes()),
        TensorType::BF16 => float::numbers(values, out, |v| half::bf16::from_f32(v).to_le_bytes()),
        TensorType::Q8_0 => blocks::<BlockQ8_0>(values, out),
        TensorType::Q4_K => blocks::<BlockQ4K>(values, out),
        TensorType::Q5_K => blocks::<BlockQ5K>(values, out),
        TensorType::Q6_K => blocks::<BlockQ6K>(values, out),
        TensorType::NVFP4 => blocks::<BlockNvfp4>(values, out),
        _ => return Err(RowError::Unsupported(ty)),
    }
    Ok(())
}

/// A row of blocks.
fn blocks<B: Quantize>(values: &[f32], out: &mut [u8]) {
    let blocks = as_blocks_mut::<B>(out).unwrap_or_default();
    for (block, values) in blocks.iter_mut().zip(values.chunks_exact(B::LEN)) {
        *block = B::quantize(values);
    }
}

/// The nearest integer in `low..=high`, ties away from zero; `low` side of zero for NaN.
#[inline]
fn nearest(x: f32, low: i32, high: i32) -> i32 {
    // the cast truncates and saturates
    ((x + 0.5f32.copysign(x)) as i32).clamp(low, high)
}

/// `1 / x`, or 0 where that is not finite.
#[inline]
fn inverse(x: f32) -> f32 {
    let inverse = 1.0 / x;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// How much each value's error counts: its magnitude plus the group's mean magnitude.
fn importance<const N: usize>(values: &[f32; N]) -> [f32; N] {
    let mean = values.iter().map(|v| v.abs()).sum::<f32>() / N as f32;
    values.map(|v| mean + v.abs())
}

/// Copies up to `N` values, zeros after them.
fn padded<const N: usize>(values: &[f32]) -> [f32; N] {
    let mut array = [0.0; N];
    let n = values.len().min(N);
    array[..n].copy_from_slice(&values[..n]);
    array
}
