//! Q4_K and Q5_K: groups of 32 with a scale and a minimum, both six bits of the block's.

use super::{Quantize, importance, inverse, nearest, padded};
use crate::blocks::{Block, BlockQ4K, BlockQ5K, F16, pack_scale_min, scale_min};

/// Values per group.
const GROUP: usize = 32;
/// Candidates for a group's scale: the range divided by `levels + STEP i`, `i` from `-STEPS` to `STEPS`.
const STEPS: i32 = 12;
const STEP: f32 = 0.1;
/// How often quants and line are fitted to each other.
const REFITS: usize = 3;

/// `y = scale q - min` with `min >= 0`.
#[derive(Clone, Copy, Default)]
struct Line {
    scale: f32,
    min: f32,
}

impl Line {
    /// The nearest quant of each value.
    fn quants(self, values: &[f32; GROUP], levels: i32) -> [u8; GROUP] {
        let inverse = inverse(self.scale);
        values.map(|v| nearest((v + self.min) * inverse, 0, levels) as u8)
    }

    /// The weighted squared error of these quants.
    fn error(self, values: &[f32; GROUP], weights: &[f32; GROUP], quants: &[u8; GROUP]) -> f32 {
        let terms = values.iter().zip(weights).zip(quants);
        terms
            .map(|((v, w), &q)| {
                w * (self.scale * f32::from(q) - self.min - v) * (self.scale * f32::from(q) - self.min - v)
            })
            .sum()
    }

    /// The line of least weighted squared error through these quants.
    fn fit(values: &[f32; GROUP], weights: &[f32; GROUP], quants: &[u8; GROUP]) -> Self {
        let (mut sw, mut sq, mut sqq, mut sv, mut svq) = (0.0f32, 0.0, 0.0, 0.0, 0.0);
        for ((v, w), &q) in values.iter().zip(weights).zip(quants) {
            let q = f32::from(q);
            sw += w;
            sq += w * q;
            sqq += w * q * q;
            sv += w * v;
            svq += w * v * q;
        }
        let inverse_determinant = inverse(sw * sqq - sq * sq);
        let min = (sq * svq - sqq * sv) * inverse_determinant;
        if min >= 0.0 {
            return Self {
                scale: (sw * svq - sq * sv) * inverse_determinant,
                min,
            };
        }
        Self {
            scale: svq * inverse(sqq),
            min: 0.0,
        }
    }
}

/// The best line found for a group's values.
fn search(values: &[f32; GROUP], levels: i32) -> Line {
    let weights = importance(values);
    let low = values.iter().fold(0.0f32, |m, &v| m.min(v));
    let high = values.iter().fold(0.0f32, |m, &v| m.max(v));
    let mut best = (f32::INFINITY, Line { scale: 0.0, min: -low });
    for i in -STEPS..=STEPS {
        let start = Line {
            scale: (high - low) / (levels as f32 + STEP * i as f32),
            min: -low,
        };
        let mut quants = start.quants(values, levels);
        for _ in 0..REFITS {
            let line = Line::fit(values, &weights, &quants);
            quants = line.quants(values, levels);
            let error = line.error(values, &weights, &quants);
            if error < best.0 && line.scale > 0.0 {
                best = (error, line);
            }
        }
    }
    best.1
}

/// Everything of a block but the packing of its quants.
struct Groups {
    d: F16,
    dmin: F16,
    scales: [u8; 12],
    quants: [u8; 256],
}

/// Quantises 256 values to `levels + 1` levels.
fn quantize(values: &[f32], levels: i32) -> Groups {
    let values: [f32; 256] = padded(values);
    let (groups, _) = values.as_chunks::<GROUP>();
    let mut lines = [Line::default(); 8];
    for (line, group) in lines.iter_mut().zip(groups) {
        *line = search(group, levels);
    }
    let (d, scales) = six_bits(lines.map(|line| line.scale));
    let (dmin, mins) = six_bits(lines.map(|line| line.min));
    let scales = pack_scale_min(&scales, &mins);
    let mut quants = [0; 256];
    let (out, _) = quants.as_chunks_mut::<GROUP>();
    for (j, (out, group)) in out.iter_mut().zip(groups).enumerate() {
        let (scale, min) = scale_min(&scales, j);
        let line = Line {
            scale: d.to_f32() * f32::from(scale),
            min: dmin.to_f32() * f32::from(min),
        };
        *out = line.quants(group, levels);
    }
    Groups {
        d,
        dmin,
        scales,
        quants,
    }
}

/// Eight numbers as multiples (0 to 63) of a common one.
fn six_bits(numbers: [f32; 8]) -> (F16, [u8; 8]) {
    let d = F16::from_f32(numbers.iter().fold(0.0f32, |m, &v| m.max(v)) / 63.0);
    let inverse = inverse(d.to_f32());
    (d, numbers.map(|v| nearest(v * inverse, 0, 63) as u8))
}

/// Low nibbles of 256 quants in the order of Q4_K.
fn pack_nibbles(quants: &[u8; 256]) -> [u8; 128] {
    core::array::from_fn(|i| {
        let even = 64 * (i / 32) + i % 32;
        quants[even] & 15 | quants[even + 32] << 4
    })
}

impl Quantize for BlockQ4K {
    fn quantize(values: &[f32]) -> Self {
        let Groups {
            d,
            dmin,
            scales,
            quants,
        } = quantize(values, 15);
        Self {
            d,
            dmin,
            scales,
            qs: pack_nibbles(&quants),
        }
    }
}

impl Quantize for BlockQ5K {
    fn quantize(values: &[f32]) -> Self {
        let Groups {
            d,
            dmin,
            scales,
            quants,
        } = quantize(values, 31);
        let bit = |l: usize, j: usize| (quants[GROUP * j + l] >> 4) << j;
        let qh = core::array::from_fn(|l| (0..8).fold(0, |byte, j| byte | bit(l, j)));
        Self {
            d,
            dmin,
            scales,
            qh,
            qs: pack_nibbles(&quants),
        }
    }
}

const _: () = assert!(BlockQ4K::LEN == 8 * GROUP && BlockQ5K::LEN == 8 * GROUP);
