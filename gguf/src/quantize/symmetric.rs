//! Q6_K: groups of 16 with a signed scale, eight bits of the block's.

use super::{Quantize, inverse, nearest, padded};
use crate::blocks::{BlockQ6K, F16};

/// Values per group.
const GROUP: usize = 16;
/// Candidates for a group's scale: the largest value divided by `-32 + STEP i`, `i` from `-STEPS` to `STEPS`.
const STEPS: i32 = 10;
const STEP: f32 = 0.1;

/// The nearest quants of a group for a scale given by its inverse.
fn quants(values: &[f32; GROUP], inverse: f32) -> [i32; GROUP] {
    values.map(|v| nearest(v * inverse, -32, 31))
}

/// The scale of least squared error (weighted by the squared values) among the candidates.
fn search(values: &[f32; GROUP]) -> f32 {
    let largest = values
        .iter()
        .fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m });
    let mut best = (f32::NEG_INFINITY, 0.0);
    for i in -STEPS..=STEPS {
        let quants = quants(values, (-32.0 + STEP * i as f32) * inverse(largest));
        let (mut svq, mut sqq) = (0.0, 0.0);
        for (v, &q) in values.iter().zip(&quants) {
            svq += v * v * v * q as f32;
            sqq += v * v * (q * q) as f32;
        }
        // the error of the best scale is a constant less this gain
        let scale = svq * inverse(sqq);
        let gain = scale * svq;
        if gain > best.0 {
            best = (gain, scale);
        }
    }
    best.1
}

impl Quantize for BlockQ6K {
    fn quantize(values: &[f32]) -> Self {
        let values: [f32; 256] = padded(values);
        let (groups, _) = values.as_chunks::<GROUP>();
        let mut exact = [0.0; 16];
        for (scale, group) in exact.iter_mut().zip(groups) {
            *scale = search(group);
        }
        // the scale of largest magnitude becomes -128, the end of the range
        let largest = exact.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m });
        let d = F16::from_f32(largest / -128.0);
        let inverse_d = inverse(d.to_f32());
        let scales = exact.map(|scale| nearest(scale * inverse_d, -128, 127) as i8);
        let mut block = Self {
            ql: [0; 128],
            qh: [0; 64],
            scales,
            d,
        };
        for ((k, group), scale) in groups.iter().enumerate().zip(scales) {
            let quants = quants(group, inverse(d.to_f32() * f32::from(scale)));
            for (l, q) in quants.into_iter().enumerate() {
                block.put(16 * k + l, (q + 32) as u8);
            }
        }
        block
    }
}

impl BlockQ6K {
    /// Sets the six bits of value `i`, which must be zero before.
    fn put(&mut self, i: usize, q: u8) {
        let (half, group, l) = (i / 128, i % 128 / 32, i % 32);
        self.ql[64 * half + i % 64] |= (q & 15) << (4 * (group / 2));
        self.qh[32 * half + l] |= (q >> 4) << (2 * group);
    }
}
