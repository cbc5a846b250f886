//! Powers, sine and cosine to an ulp or two, from `fma` alone: the same bits on every device and in the emulator.
//!
//! RoPE turns by position × frequency. In f32 that product alone is wrong by 40,000 · 2^-24 ≈ 0.002 rad at
//! position 40,000; [`Turns::sincos`] forms it in two parts and keeps only the fraction of a turn.

use crate::float::{fma, round};

/// An unevaluated sum of two floats, the second below half an ulp of the first.
type Pair = (f32, f32);

/// a + b exactly.
#[inline(always)]
fn two_sum(a: f32, b: f32) -> Pair {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// a · b exactly.
#[inline(always)]
fn two_product(a: f32, b: f32) -> Pair {
    let product = a * b;
    (product, fma(a, b, -product))
}

/// A float and the rest of an f64 behind it.
const fn split(x: f64) -> Pair {
    let high = x as f32;
    (high, (x - high as f64) as f32)
}

/// sin and cos of `x` radians, within 2 ulp for |x| ≤ 100,000.
#[inline(always)]
#[must_use]
pub fn sincos(x: f32) -> (f32, f32) {
    // π/2 in three floats: the first difference is exact, what the second loses is carried on.
    const P1: f32 = core::f32::consts::FRAC_PI_2;
    const P2: f32 = (core::f64::consts::FRAC_PI_2 - P1 as f64) as f32;
    // π/2 beyond its f64 is 6.123234e-17.
    const P3: f32 = (core::f64::consts::FRAC_PI_2 - P1 as f64 - P2 as f64 + 6.123_233_995_736_766e-17) as f32;
    let quadrant = round(x * core::f32::consts::FRAC_2_PI);
    let first = fma(-quadrant, P1, x);
    let (second, second_rest) = two_product(-quadrant, P2);
    let (high, rest) = two_sum(first, second);
    let low = fma(-quadrant, P3, rest + second_rest);
    turn(crate::float::to_i32(quadrant), (high, low))
}

/// sin and cos of `quadrant` · π/2 + `angle`, |angle| ≤ π/4.
#[inline(always)]
fn turn(quadrant: i32, angle: Pair) -> (f32, f32) {
    let (sine, cosine) = (small_sin(angle), small_cos(angle));
    let (s, c) = if quadrant & 1 == 0 {
        (sine, cosine)
    } else {
        (cosine, sine)
    };
    // Signs by bits, not by two selections: the assembler has got those wrong where there are two angles.
    let sign = |v: f32, bit: i32| f32::from_bits(v.to_bits() ^ (bit as u32 & 2) << 30);
    (sign(s, quadrant), sign(c, quadrant + 1))
}

/// The Taylor series of sin to the 9th power; the next term is below 2e-9 of the result.
#[inline(always)]
fn small_sin((x, low): Pair) -> f32 {
    let z = x * x;
    let series = fma(
        z,
        fma(z, fma(z, 1.0 / 362_880.0, -1.0 / 5_040.0), 1.0 / 120.0),
        -1.0 / 6.0,
    );
    // sin(x + low) = sin x + low cos x.
    x + fma(x * z, series, fma(low * z, -0.5, low))
}

/// The Taylor series of cos to the 10th power; the next term is below 2e-10.
#[inline(always)]
fn small_cos((x, low): Pair) -> f32 {
    let z = x * x;
    let series = fma(
        z,
        fma(z, fma(z, -1.0 / 3_628_800.0, 1.0 / 40_320.0), -1.0 / 720.0),
        1.0 / 24.0,
    );
    // 1 - z/2 in two parts: its rounding error is as large as what follows.
    let half = 0.5 * z;
    let one_less = 1.0 - half;
    let lost = ((1.0 - one_less) - half) - 0.5 * fma(x, x, -z);
    one_less + fma(z * z, series, fma(-x, low, lost))
}

/// An angle for each step, in turns (1 is 2π) and in two floats.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Turns {
    /// The angle, rounded.
    pub high: f32,
    /// What rounding left over.
    pub low: f32,
}

impl Turns {
    /// From radians a step.
    #[inline]
    #[must_use]
    pub const fn from_radians(radians: f64) -> Self {
        let (high, low) = split(radians / core::f64::consts::TAU);
        Self { high, low }
    }

    /// sin and cos of `steps` of this angle, within 2 ulp of 1 for up to 2^24 steps of at most a turn.
    #[inline(always)]
    #[must_use]
    pub fn sincos(self, steps: u32) -> (f32, f32) {
        let n = crate::float::from_u32(steps);
        let (turns, rest) = two_product(n, self.high);
        let fraction = turns - round(turns);
        let quarters = round(4.0 * fraction);
        let (high, low) = two_sum(fma(quarters, -0.25, fraction), fma(n, self.low, rest));
        turn(crate::float::to_i32(quarters), radians(high, low))
    }
}

/// `(high + low)` turns in radians.
#[inline(always)]
fn radians(high: f32, low: f32) -> Pair {
    const TAU: Pair = split(core::f64::consts::TAU);
    let (product, rest) = two_product(high, TAU.0);
    (product, fma(high, TAU.1, fma(low, TAU.0, rest)))
}

/// x^y within 2 ulp, for x > 0 that is a normal number and results that are.
#[inline(always)]
#[must_use]
pub fn pow(x: f32, y: f32) -> f32 {
    let (high, low) = log2(x);
    let (product, rest) = two_product(y, high);
    exp2((product, fma(y, low, rest)))
}

/// log2 x in two floats, good to about 2^-31 of the fraction's part.
#[inline(always)]
fn log2(x: f32) -> Pair {
    const LOG2_E: Pair = split(core::f64::consts::LOG2_E);
    // x = m · 2^e with m from √½ to √2.
    const ROOT_HALF: u32 = core::f32::consts::FRAC_1_SQRT_2.to_bits();
    let e = (x.to_bits().wrapping_sub(ROOT_HALF) as i32) >> 23;
    let m = f32::from_bits(x.to_bits().wrapping_sub((e as u32) << 23));
    // ln m = 2 artanh s, s = (m - 1) / (m + 1) in two parts.
    let (top, (bottom, bottom_low)) = (m - 1.0, two_sum(m, 1.0));
    let s = crate::float::div(top, bottom);
    let s_low = crate::float::div(fma(-s, bottom, top) - s * bottom_low, bottom);
    let z = s * s;
    let series = fma(
        z,
        fma(z, fma(z, fma(z, 2.0 / 11.0, 2.0 / 9.0), 2.0 / 7.0), 2.0 / 5.0),
        2.0 / 3.0,
    );
    let (ln, ln_low) = two_sum(2.0 * s, fma(s * z, series, 2.0 * s_low));
    let (product, rest) = two_product(ln, LOG2_E.0);
    let (high, low) = two_sum(crate::float::from_i32(e), product);
    (high, low + fma(ln, LOG2_E.1, fma(ln_low, LOG2_E.0, rest)))
}

/// 2^(high + low): the Taylor series over half a unit, scaled in two steps.
#[inline(always)]
fn exp2((high, low): Pair) -> f32 {
    const LN_2: f32 = core::f32::consts::LN_2;
    let clamped = crate::float::min(crate::float::max(high, -252.0), 252.0);
    let whole = round(clamped);
    let t = (clamped - whole + low) * LN_2;
    let series = fma(
        t,
        fma(
            t,
            fma(t, fma(t, fma(t, 1.0 / 5_040.0, 1.0 / 720.0), 1.0 / 120.0), 1.0 / 24.0),
            1.0 / 6.0,
        ),
        0.5,
    );
    let fraction = 1.0 + fma(t * t, series, t);
    let whole = crate::float::to_i32(whole);
    let half = whole >> 1;
    let power = |e: i32| f32::from_bits(((e + 127) as u32) << 23);
    fraction * power(half) * power(whole - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units of the last place of `want` (of 1 at least, where `floor` is set).
    fn ulps(got: f32, want: f64, floor: f64) -> f64 {
        let scale = want.abs().max(floor);
        (f64::from(got) - want).abs() / (scale.log2().floor().exp2() * f64::from(f32::EPSILON))
    }

    #[test]
    fn sine_and_cosine_are_good_to_a_hundred_thousand_radians() {
        let mut worst = 0f64;
        for i in 0..400_000u32 {
            let x = i as f32 * 0.250_013 * if i % 2 == 0 { 1.0 } else { -1.0 };
            let (s, c) = sincos(x);
            worst = worst
                .max(ulps(s, f64::from(x).sin(), 1e-30))
                .max(ulps(c, f64::from(x).cos(), 1e-30));
        }
        assert!(worst < 2.0, "{worst}");
    }

    #[test]
    fn turns_are_good_at_any_position() {
        let mut worst = 0f64;
        for i in 0..64 {
            let frequency = 1e6f64.powf(-f64::from(i) / 64.0);
            let turns = Turns::from_radians(frequency);
            for position in (0..300_000).step_by(37) {
                let (s, c) = turns.sincos(position);
                let angle = f64::from(position) * frequency;
                worst = worst
                    .max((f64::from(s) - angle.sin()).abs())
                    .max((f64::from(c) - angle.cos()).abs());
            }
        }
        assert!(worst < 1.2e-7, "{worst:e}");
    }

    #[test]
    fn powers_are_good_to_two_ulp() {
        let mut worst = 0f64;
        for base in [1e4f32, 5e5, 1e6, 1e7, 2.0, 0.3, 1.000_001, 123.456, 1e-30] {
            for i in -400..=400 {
                let y = i as f32 / 100.0;
                let want = f64::from(base).powf(f64::from(y));
                if (1e-37..1e38).contains(&want) {
                    worst = worst.max(ulps(pow(base, y), want, 0.0));
                }
            }
        }
        assert!(worst < 2.0, "{worst}");
        assert_eq!(pow(10.0, 0.0), 1.0);
        assert_eq!(pow(2.0, 10.0), 1024.0);
    }
}
