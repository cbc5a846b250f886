//! Arithmetic.

use super::{read, write};
use crate::prelude::*;
use half::{bf16, f16};

/// A float from -1000 to 1000, in steps that are no round numbers.
#[inline(always)]
fn float(word: u32) -> f32 {
    (word as i32 >> 8) as f32 * 1.192_15e-4
}

/// Instructions that are correctly rounded or exact.
#[kernel]
pub unsafe fn selftest_floats(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let [a, b, c, d] = unsafe { read(input) };
    let (x, y, z) = (float(a), float(b), float(c));
    let results = [
        float::fma(x, y, z).to_bits(),
        float::rcp(x).to_bits(),
        float::sqrt(float::abs(y)).to_bits(),
        float::min(x, y).to_bits() ^ float::max(y, z).to_bits(),
        float::to_i32_round(x) as u32 ^ float::to_i32(y) as u32,
        float::to_u32(z) ^ float::from_i32(d as i32).to_bits(),
        float::div(x, y).to_bits() ^ float::from_u32(d).to_bits(),
        float::round(x).to_bits() ^ float::floor(y).to_bits(),
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results) }
}

/// Instructions of the special function unit.
#[kernel]
pub unsafe fn selftest_approximations(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let [a, b, c, _] = unsafe { read(input) };
    let (x, y, z) = (float(a) * 1e-3, float::abs(float(b)) + 1e-3, float(c) * 3e-3);
    let results = [
        float::exp2_approx(x),
        float::log2_approx(y),
        float::rsqrt_approx(y),
        float::rcp_approx(y),
        float::sin_approx(z),
        float::cos_approx(z),
        float::div_approx(x, y),
        // Good to 2^-11 only, and so brought down to the tolerance of the rest.
        float::tanh_approx(x) * 1e-3,
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results.map(f32::to_bits)) }
}

/// Functions made of several instructions.
#[kernel]
pub unsafe fn selftest_functions(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let [a, b, c, d] = unsafe { read(input) };
    let x = float(a) * 0.08;
    let (sine, cosine) = trig::sincos(float(b) * 40.0);
    let turns = trig::Turns {
        high: float(c) * 1e-3,
        low: float(d) * 1e-12,
    };
    let (turned_sine, turned_cosine) = turns.sincos(a >> 15);
    let results = [
        float::exp(x),
        float::ln(float::abs(float(b)) + 0.5) * 0.1,
        float::silu(x),
        sine,
        cosine,
        turned_sine,
        turned_cosine,
        trig::pow(float::abs(float(c)) + 1.0, float(d) * 5e-3),
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results.map(f32::to_bits)) }
}

/// 16-bit floats.
#[kernel]
pub unsafe fn selftest_halves(input: *const u32, output: *mut u32) {
    use half2::{Bf16x2, F16x2};
    // SAFETY: the shape of all self-tests.
    let [a, b, c, d] = unsafe { read(input) };
    let (x, y, z) = (float(a), float(b), float(c));
    let (p, q, r) = (F16x2::from_f32(x, y), F16x2::from_f32(z, x), F16x2::from_f32(y, z));
    let (s, t, u) = (Bf16x2::from_f32(x, y), Bf16x2::from_f32(z, x), Bf16x2::from_f32(y, z));
    let small = f16::from_bits(d as u16 & 0xbbff);
    let results = [
        half2::f16_to_f32(small).to_bits(),
        u32::from(half2::f32_to_f16(x).to_bits()) | u32::from(half2::f32_to_bf16(y).to_bits()) << 16,
        half2::bf16_to_f32(bf16::from_bits(d as u16 & 0xbfff)).to_bits(),
        p.fma(q, r).0,
        s.fma(t, u).0,
        p.add(q).0 ^ p.sub(r).0,
        q.mul(F16x2::from_f32(1e-3, 0.01)).0,
        p.max(q).0 ^ q.min(r).0,
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results) }
}

/// Dot products of four bytes.
#[kernel]
pub unsafe fn selftest_dots(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let [a, b, c, _] = unsafe { read(input) };
    let c = c as i32;
    let results = [
        dot::dp4a_ss(a, b, c),
        dot::dp4a_uu(a, b, c),
        dot::dp4a_su(a, b, c),
        dot::dp4a_us(a, b, c),
        0,
        0,
        0,
        0,
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results.map(|sum| sum as u32)) }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) mod expected {
    use super::super::{THREADS, Words};
    use super::float;
    use half::{bf16, f16};

    type Input = [[u32; 4]; THREADS];

    pub fn selftest_floats(input: &Input) -> Words {
        input.map(|[a, b, c, d]| {
            let (x, y, z) = (float(a), float(b), float(c));
            // Products and quotients of two f32 in f64, and a sum of f64: rounded to f32 once more
            // only where 53 bits hold them; `mul_add` does for the rest.
            [
                x.mul_add(y, z).to_bits(),
                ((1.0 / f64::from(x)) as f32).to_bits(),
                (f64::from(y.abs()).sqrt() as f32).to_bits(),
                (if x < y { x } else { y }).to_bits() ^ (if y > z { y } else { z }).to_bits(),
                (x.round_ties_even() as i32 ^ y as i32) as u32,
                z as u32 ^ (f64::from(d as i32) as f32).to_bits(),
                ((f64::from(x) / f64::from(y)) as f32).to_bits() ^ (f64::from(d) as f32).to_bits(),
                x.round_ties_even().to_bits() ^ y.floor().to_bits(),
            ]
        })
    }

    pub fn selftest_approximations(input: &Input) -> Words {
        input.map(|[a, b, c, _]| {
            let (x, y, z) = (float(a) * 1e-3, float(b).abs() + 1e-3, float(c) * 3e-3);
            let (x, y, z) = (f64::from(x), f64::from(y), f64::from(z));
            let results = [
                x.exp2(),
                y.log2(),
                1.0 / y.sqrt(),
                1.0 / y,
                z.sin(),
                z.cos(),
                x / y,
                x.tanh() * 1e-3,
            ];
            results.map(|result| (result as f32).to_bits())
        })
    }

    pub fn selftest_functions(input: &Input) -> Words {
        input.map(|[a, b, c, d]| {
            let x = f64::from(float(a) * 0.08);
            let angle = f64::from(float(b) * 40.0);
            let turns = f64::from(float(c) * 1e-3) + f64::from(float(d) * 1e-12);
            let turned = (turns * f64::from(a >> 15)).fract() * core::f64::consts::TAU;
            let power = f64::from(float(c).abs() + 1.0).powf(f64::from(float(d) * 5e-3));
            let results = [
                x.exp(),
                f64::from(float(b).abs() + 0.5).ln() * 0.1,
                x / (1.0 + (-x).exp()),
                angle.sin(),
                angle.cos(),
                turned.sin(),
                turned.cos(),
                power,
            ];
            results.map(|result| (result as f32).to_bits())
        })
    }

    /// a · b + c rounded to a 16-bit float once. These inputs (up to 1000, 11 bits) leave the f64 exact.
    fn fused(a: f64, b: f64, c: f64, round: fn(f32) -> f64) -> f64 {
        round(crate::half2::odd_f32(a * b + c))
    }

    pub fn selftest_halves(input: &Input) -> Words {
        let pair16 = |low: f32, high: f32| {
            u32::from(f16::from_f32(low).to_bits()) | u32::from(f16::from_f32(high).to_bits()) << 16
        };
        let pair = |low: f64, high: f64| pair16(low as f32, high as f32);
        let bf_pair = |low: f64, high: f64| {
            u32::from(bf16::from_f32(low as f32).to_bits()) | u32::from(bf16::from_f32(high as f32).to_bits()) << 16
        };
        input.map(|[a, b, c, d]| {
            let (x, y, z) = (float(a), float(b), float(c));
            let h = |v: f32| f16::from_f32(v).to_f64();
            let g = |v: f32| bf16::from_f32(v).to_f64();
            let to16 = |v: f32| f16::from_f32(v).to_f64();
            let to_b16 = |v: f32| bf16::from_f32(v).to_f64();
            let (p, q, r) = ([h(x), h(y)], [h(z), h(x)], [h(y), h(z)]);
            let (s, t, u) = ([g(x), g(y)], [g(z), g(x)], [g(y), g(z)]);
            let small = d as u16 & 0xbbff;
            [
                f16::from_bits(small).to_f32().to_bits(),
                u32::from(f16::from_f32(x).to_bits()) | u32::from(bf16::from_f32(y).to_bits()) << 16,
                (d & 0xbfff) << 16,
                pair(fused(p[0], q[0], r[0], to16), fused(p[1], q[1], r[1], to16)),
                bf_pair(fused(s[0], t[0], u[0], to_b16), fused(s[1], t[1], u[1], to_b16)),
                pair(p[0] + q[0], p[1] + q[1]) ^ pair(p[0] - r[0], p[1] - r[1]),
                pair(q[0] * h(1e-3), q[1] * h(0.01)),
                pair(p[0].max(q[0]), p[1].max(q[1])) ^ pair(q[0].min(r[0]), q[1].min(r[1])),
            ]
        })
    }

    pub fn selftest_dots(input: &Input) -> Words {
        input.map(|[a, b, c, _]| {
            let signed = |word: u32, i: usize| i64::from(word.to_le_bytes()[i] as i8);
            let plain = |word: u32, i: usize| i64::from(word.to_le_bytes()[i]);
            let sum = |term: &dyn Fn(usize) -> i64| (i64::from(c as i32) + (0..4).map(term).sum::<i64>()) as u32;
            [
                sum(&|i| signed(a, i) * signed(b, i)),
                sum(&|i| plain(a, i) * plain(b, i)),
                sum(&|i| signed(a, i) * plain(b, i)),
                sum(&|i| plain(a, i) * signed(b, i)),
                0,
                0,
                0,
                0,
            ]
        })
    }
}
