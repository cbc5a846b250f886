//! Activations as 8-bit integers.
//!
//! The two forms that llama.cpp's CPU code uses too: [`Super`] (its Q8_K) for K-quants, [`Group`] (its
//! Q8_0 and Q8_1) for types with blocks of 32.

use super::dispatch;
use super::isa::{Isa, array};

/// Values in a [`Super`].
pub(in crate::cpu) const SUPER: usize = 256;
/// Values in a [`Group`].
pub(in crate::cpu) const GROUP: usize = 32;

/// 256 values, `x ≈ d · q`, q from −127 to 127.
#[derive(Debug, Clone, PartialEq)]
#[repr(C, align(32))]
pub(in crate::cpu) struct Super {
    pub(super) q: [[i8; 32]; 8],
    /// Sums of 16 q each.
    pub(super) sums: [i16; 16],
    pub(super) d: f32,
}

/// 32 values, `x ≈ d · q`, q from −127 to 127, d rounded to half precision.
#[derive(Debug, Clone, PartialEq)]
#[repr(C)]
pub(in crate::cpu) struct Group {
    pub(super) q: [i8; 32],
    pub(super) d: f32,
    /// d times the sum of q, for types with an offset.
    pub(super) sum: f32,
}

dispatch! {
    /// Appends the 256-value blocks of `x` to `out`. The scale maps the value of largest magnitude to −127.
    pub(in crate::cpu) fn quantize_supers / quantize_supers_avx2(x: &[f32], out: &mut Vec<Super>) = supers_body
}

dispatch! {
    /// Appends the 32-value blocks of `x` to `out`.
    pub(in crate::cpu) fn quantize_groups / quantize_groups_avx2(x: &[f32], out: &mut Vec<Group>) = groups_body
}

#[inline(always)]
fn supers_body<I: Isa>(x: &[f32], out: &mut Vec<Super>) {
    let (blocks, _) = x.as_chunks::<SUPER>();
    out.extend(blocks.iter().map(super_block));
}

#[inline(always)]
fn groups_body<I: Isa>(x: &[f32], out: &mut Vec<Group>) {
    let (blocks, _) = x.as_chunks::<GROUP>();
    out.extend(blocks.iter().map(group_block));
}

#[inline(always)]
fn super_block(x: &[f32; SUPER]) -> Super {
    let (low, high) = extremes(x);
    let extreme = if high >= -low { high } else { low };
    let inverse = if extreme == 0.0 { 0.0 } else { -127.0 / extreme };
    let mut block = Super {
        q: [[0; 32]; 8],
        sums: [0; 16],
        d: if extreme == 0.0 { 0.0 } else { 1.0 / inverse },
    };
    for (q, x) in block.q.iter_mut().zip(x.as_chunks::<32>().0) {
        *q = rounded(x, inverse);
    }
    for (g, sum) in block.sums.iter_mut().enumerate() {
        *sum = block.q[g / 2][g % 2 * 16..][..16].iter().map(|&q| i16::from(q)).sum();
    }
    block
}

#[inline(always)]
fn group_block(x: &[f32; GROUP]) -> Group {
    let (low, high) = extremes(x);
    let d = high.max(-low) / 127.0;
    let q = rounded(x, if d == 0.0 { 0.0 } else { 1.0 / d });
    let d = half::f16::from_f32(d).to_f32();
    let sum: i32 = q.iter().map(|&q| i32::from(q)).sum();
    Group {
        q,
        d,
        sum: d * sum as f32,
    }
}

/// The smallest and the largest value; NaN does not count.
#[inline(always)]
fn extremes<const N: usize>(x: &[f32; N]) -> (f32, f32) {
    let mut lanes = ([f32::INFINITY; 8], [f32::NEG_INFINITY; 8]);
    for x in x.as_chunks::<8>().0 {
        for (l, &x) in x.iter().enumerate() {
            lanes.0[l] = if x < lanes.0[l] { x } else { lanes.0[l] };
            lanes.1[l] = if x > lanes.1[l] { x } else { lanes.1[l] };
        }
    }
    (
        lanes.0.into_iter().fold(f32::INFINITY, f32::min),
        lanes.1.into_iter().fold(f32::NEG_INFINITY, f32::max),
    )
}

/// `x · inverse` to the nearest integer, halves to even, at most ±127.
#[inline(always)]
fn rounded(x: &[f32; 32], inverse: f32) -> [i8; 32] {
    // Adding 1.5·2^23 rounds and leaves the integer in the low bits: a conversion that vectorises.
    array(|i| ((x[i] * inverse).clamp(-127.0, 127.0) + 12_582_912.0).to_bits() as i8)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn values() -> Vec<f32> {
        (0..1024)
            .map(|i| (crate::sample::uniform(5, i) - 0.5) * 1.5f32.powi((i / 64) as i32 - 8))
            .collect()
    }

    #[test]
    fn levels_agree_and_errors_stay_within_half_a_step() {
        let x = values();
        let run = |level| {
            let (mut supers, mut groups) = (Vec::new(), Vec::new());
            quantize_supers(level, &x, &mut supers);
            quantize_groups(level, &x, &mut groups);
            (supers, groups)
        };
        let (supers, groups) = run(Level::best());
        assert_eq!((supers.len(), groups.len()), (4, 32));
        assert_eq!(
            (&supers, &groups),
            (&run(Level::portable()).0, &run(Level::portable()).1)
        );
        for (i, x) in x.iter().enumerate() {
            let block = &supers[i / 256];
            let back = block.d * f32::from(block.q[i % 256 / 32][i % 32]);
            assert!((back - x).abs() <= block.d.abs() * 0.501, "{i}: {x} {back}");
            let block = &groups[i / 32];
            let back = block.d * f32::from(block.q[i % 32]);
            assert!((back - x).abs() <= block.d * 0.6, "{i}: {x} {back}");
        }
    }

    #[test]
    fn sums_and_scale() {
        let mut x = [0.5f32; 256];
        x[3] = 2.0;
        let block = super_block(&x);
        assert_eq!(block.q[0][3], -127);
        assert_eq!(block.sums[1], -32 * 16);
        assert_eq!(super_block(&[0.0; 256]).d, 0.0);
        assert_eq!(
            group_block(&[0.0; 32]),
            Group {
                q: [0; 32],
                d: 0.0,
                sum: 0.0
            }
        );
    }

    #[test]
    fn hostile_values_do_not_panic() {
        let mut x = [1.0f32; 256];
        (x[0], x[1], x[2]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
        super_block(&x);
        super_block(&[f32::NAN; 256]);
        group_block(&[f32::INFINITY; 32]);
    }
}
