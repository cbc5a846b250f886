//! Quantisation of rows of f32.

mod float;

use crate::dequant::{RowError, check_row};
use crate::types::TensorType;

/// Quantises `values` into `out`, which they must fill exactly.
///
/// # Errors
/// [`RowError::Length`] when the sizes do not match, [`RowError::Unsupported`] for types that are only read.
pub fn quantize_row(ty: TensorType, values: &[f32], out: &mut [u8]) -> Result<(), RowError> {
    check_row(ty, out.len(), values.len())?;
    match ty {
        TensorType::F32 => float::numbers(values, out, f32::to_le_bytes),
        TensorType::F16 => float::numbers(values, out, |v| half::f16::from_f32(v).to_le_bytes()),
        TensorType::BF16 => float::numbers(values, out, |v| half::bf16::from_f32(v).to_le_bytes()),
        _ => return Err(RowError::Unsupported(ty)),
    }
    Ok(())
}
