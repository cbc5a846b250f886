//! NVFP4: groups of 16 with a scale of 8 bits, and one more scale for the whole tensor.
//!
//! The 8-bit scales reach from 2^-9 to 448 only, so that a tensor of ordinary weights needs the second scale: divide by
//! [`tensor_scale`], quantise, and store the scale beside the tensor; results are multiplied by it.

use super::{Quantize, inverse, padded};
use crate::blocks::{BlockNvfp4, FP4_TABLE, ue4m3_half};

/// Values per group.
const GROUP: usize = 16;
/// Largest code of a group's scale (the next one is not a number).
const LARGEST_CODE: u8 = 0x7e;
/// The largest value that a group can hold: 6 times the largest scale.
const LARGEST: f32 = 6.0 * 448.0;

/// The second scale that makes the best use of the range: the largest magnitude becomes 2,688. 1 for all zeros.
pub fn tensor_scale(values: &[f32]) -> f32 {
    let largest = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let scale = largest / LARGEST;
    if scale.is_normal() { scale } else { 1.0 }
}

impl Quantize for BlockNvfp4 {
    fn quantize(values: &[f32]) -> Self {
        let values: [f32; 64] = padded(values);
        let (groups, _) = values.as_chunks::<GROUP>();
        let mut block = Self { d: [0; 4], qs: [0; 32] };
        for (s, group) in groups.iter().enumerate() {
            let (code, quants) = quantize_group(group);
            block.d[s] = code;
            for j in 0..8 {
                block.qs[8 * s + j] = quants[j] | quants[j + 8] << 4;
            }
        }
        block
    }
}

/// The scale code and nibbles of least squared error: codes around those that map the largest magnitude to 6 and to 4
/// are tried.
fn quantize_group(values: &[f32; GROUP]) -> (u8, [u8; GROUP]) {
    let largest = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let low = code_below(largest / 12.0).saturating_sub(1);
    let high = code_below(largest / 8.0).saturating_add(1).min(LARGEST_CODE);
    let mut best = (f32::INFINITY, 0, [0; GROUP]);
    for code in low..=high {
        let d = ue4m3_half(code);
        let quants = values.map(|v| nearest_fp4(v * inverse(d)));
        let error = |(v, q): (&f32, &u8)| {
            let e = d * f32::from(FP4_TABLE[usize::from(*q)]) - v;
            e * e
        };
        let error = values.iter().zip(&quants).map(error).sum();
        if error < best.0 {
            best = (error, code, quants);
        }
    }
    (best.1, best.2)
}

/// The largest code whose halved scale is at most `d`.
fn code_below(d: f32) -> u8 {
    let (mut low, mut high) = (0, LARGEST_CODE);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if ue4m3_half(middle) <= d {
            low = middle
        } else {
            high = middle - 1
        }
    }
    low
}

/// The nibble whose doubled value is nearest to `x`, ties to the smaller magnitude.
fn nearest_fp4(x: f32) -> u8 {
    let magnitude = x.abs();
    // middles between neighbours of the doubled table
    let steps = [0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0];
    let n = steps.iter().filter(|&&middle| magnitude > middle).count() as u8;
    if x < 0.0 && n > 0 { n | 8 } else { n }
}
