//! Small conversions that several kernels need.

use cuda_std::half2;

/// The f16 in the low 16 bits of `bits`, as f32 (`cvt.f32.f16`).
#[inline(always)]
pub fn half(bits: u32) -> f32 {
    half2::f16_to_f32(half::f16::from_bits(bits as u16))
}
