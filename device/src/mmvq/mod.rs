//! Quantised matrix × quantised vector, `y = W·x`, for one vector.
//!
//! Two forms of each weight type. [`tensor`] multiplies on integer tensor cores with 16-bit activations and is the one
//! to use: least arithmetic, least rounding. [`dp4a`] multiplies four bytes at a time with 8-bit activations; it needs
//! no row groups of 16 and is the yardstick that the tensor form has to beat.

pub mod dp4a;
mod meeting;
mod supply;
pub mod tensor;
mod work;

/// `y[r] = Σ w[r][c]·x[c]` in f64: the reference of every kernel here, over the weights and activations that the
/// quantised forms stand for.
#[cfg(not(target_arch = "nvptx64"))]
pub fn reference(weights: &[f32], x: &[f64]) -> Vec<f64> {
    let dot = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
    weights.chunks_exact(x.len()).map(dot).collect()
}

/// Where the operands of a product lie.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// The matrix, in the kernel's layout.
    pub weights: cuda_std::DevicePtr<u8>,
    /// The activation: records, or plain floats where the kernel takes those.
    pub x: cuda_std::DevicePtr<u8>,
    /// One float a row.
    pub y: cuda_std::DevicePtr<f32>,
}
