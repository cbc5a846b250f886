//! Random matrices of every type that kernels decode.

use super::{floats, q4_k_rows, q5_k_rows, q6_k_rows, q8_0_rows};
use half::{bf16, f16};
use sparkinfer_gguf::dequant::dequantize_row;
use sparkinfer_gguf::types::TensorType;

/// A matrix as in a file, and its values.
pub struct Matrix {
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// What they stand for, row after row.
    pub values: Vec<f32>,
}

/// `n` random weights of a type; `n` is a multiple of its block.
///
/// # Errors
/// For types without a generator here.
pub fn matrix(ty: TensorType, seed: u64, n: usize) -> Result<Matrix, String> {
    let bytes = match ty {
        TensorType::F32 => floats(seed, n, 0.05).iter().flat_map(|v| v.to_le_bytes()).collect(),
        TensorType::F16 => floats(seed, n, 0.05)
            .iter()
            .flat_map(|v| f16::from_f32(*v).to_le_bytes())
            .collect(),
        TensorType::BF16 => floats(seed, n, 0.05)
            .iter()
            .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
            .collect(),
        TensorType::Q8_0 => q8_0_rows(seed, n / 32),
        TensorType::Q4_K => q4_k_rows(seed, n / 256),
        TensorType::Q5_K => q5_k_rows(seed, n / 256),
        TensorType::Q6_K => q6_k_rows(seed, n / 256),
        other => return Err(format!("no random rows of {}", other.name())),
    };
    let mut values = vec![0f32; n];
    dequantize_row(ty, &bytes, &mut values).map_err(|e| e.to_string())?;
    Ok(Matrix { bytes, values })
}
