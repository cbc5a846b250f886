//! Random matrices of every type that kernels decode.

use super::blocks::rows;
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
        TensorType::Q4_0 => rows(seed, n / 32, 18, &[(0, 5e-3)]),
        TensorType::Q4_1 => rows(seed, n / 32, 20, &[(0, 5e-3), (2, 4e-2)]),
        TensorType::Q5_0 => rows(seed, n / 32, 22, &[(0, 3e-3)]),
        TensorType::Q5_1 => rows(seed, n / 32, 24, &[(0, 3e-3), (2, 4e-2)]),
        TensorType::Q8_0 => q8_0_rows(seed, n / 32),
        TensorType::Q2_K => rows(seed, n / 256, 84, &[(80, 3e-3), (82, 3e-3)]),
        TensorType::Q3_K => rows(seed, n / 256, 110, &[(108, 1e-3)]),
        TensorType::IQ4_NL => rows(seed, n / 32, 18, &[(0, 5e-4)]),
        TensorType::IQ4_XS => rows(seed, n / 256, 136, &[(0, 3e-5)]),
        TensorType::MXFP4 => with_exponents(rows(seed, n / 32, 17, &[]), 17, 1),
        TensorType::NVFP4 => with_exponents(rows(seed, n / 64, 36, &[]), 36, 4),
        TensorType::Q4_K => q4_k_rows(seed, n / 256),
        TensorType::Q5_K => q5_k_rows(seed, n / 256),
        TensorType::Q6_K => q6_k_rows(seed, n / 256),
        other => return Err(format!("no random rows of {}", other.name())),
    };
    let mut values = vec![0f32; n];
    dequantize_row(ty, &bytes, &mut values).map_err(|e| e.to_string())?;
    Ok(Matrix { bytes, values })
}

/// Brings the first `scales` bytes of each block, which are floats of 8 bits or exponents, into the middle of their range.
fn with_exponents(mut bytes: Vec<u8>, block_bytes: usize, scales: usize) -> Vec<u8> {
    for block in bytes.chunks_exact_mut(block_bytes) {
        for scale in &mut block[..scales] {
            *scale = if scales == 1 { 120 + *scale % 8 } else { *scale % 64 };
        }
    }
    bytes
}
