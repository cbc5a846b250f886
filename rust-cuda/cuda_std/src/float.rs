//! Float instructions.
//!
//! The device does not contract `a * b + c`: say [`fma`]. Names ending in `_approx` are the special
//! function unit's; the emulator gives the correctly rounded result instead, so a test must allow
//! the error that each documents (from the PTX manual).

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident($from:ty) -> $to:ty, $instruction:literal, $input:ident -> $output:ident, $host:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[must_use]
        pub fn $name(x: $from) -> $to {
            on! { ptx {
                let y: $to;
                // SAFETY: a pure instruction on registers.
                unsafe { core::arch::asm!(concat!($instruction, " {y}, {x};"), y = out($output) y, x = in($input) x, options(pure, nomem, nostack)) };
                y
            } emu { ($host)(x) } }
        }
    )*};
}

unary! {
    /// `ex2.approx.ftz.f32`: 2^x, within 2^-22 relative; results below 2^-126 are 0.
    exp2_approx(f32) -> f32, "ex2.approx.ftz.f32", reg32 -> reg32, |x: f32| flush((f64::from(flush(x)).exp2()) as f32);
    /// `lg2.approx.f32`: log2 x, within 2^-22 absolute around 1, relative elsewhere.
    log2_approx(f32) -> f32, "lg2.approx.f32", reg32 -> reg32, |x: f32| f64::from(x).log2() as f32;
    /// `rsqrt.approx.f32`: 1/√x, within 2^-22.9 relative.
    rsqrt_approx(f32) -> f32, "rsqrt.approx.f32", reg32 -> reg32, |x: f32| f64::from(x).sqrt().recip() as f32;
    /// `rcp.approx.ftz.f32`: 1/x, within 1 ulp; subnormals count as 0.
    rcp_approx(f32) -> f32, "rcp.approx.ftz.f32", reg32 -> reg32, |x: f32| flush(flush(x).recip());
    /// `rcp.rn.f32`: 1/x, correctly rounded.
    rcp(f32) -> f32, "rcp.rn.f32", reg32 -> reg32, |x: f32| x.recip();
    /// `sqrt.rn.f32`: √x, correctly rounded.
    sqrt(f32) -> f32, "sqrt.rn.f32", reg32 -> reg32, |x: f32| x.sqrt();
    /// `sin.approx.f32`: within 2^-20.5 absolute for |x| ≤ π. For RoPE use [`crate::trig`].
    sin_approx(f32) -> f32, "sin.approx.f32", reg32 -> reg32, |x: f32| f64::from(x).sin() as f32;
    /// `cos.approx.f32`: within 2^-20.5 absolute for |x| ≤ π. For RoPE use [`crate::trig`].
    cos_approx(f32) -> f32, "cos.approx.f32", reg32 -> reg32, |x: f32| f64::from(x).cos() as f32;
    /// `tanh.approx.f32`: within 2^-11 relative.
    tanh_approx(f32) -> f32, "tanh.approx.f32", reg32 -> reg32, |x: f32| f64::from(x).tanh() as f32;
    /// `abs.f32`.
    abs(f32) -> f32, "abs.f32", reg32 -> reg32, |x: f32| x.abs();
    /// `cvt.rni.f32.f32`: to the nearest whole number, ties to even.
    round(f32) -> f32, "cvt.rni.f32.f32", reg32 -> reg32, |x: f32| x.round_ties_even();
    /// `cvt.rmi.f32.f32`: to the whole number below.
    floor(f32) -> f32, "cvt.rmi.f32.f32", reg32 -> reg32, |x: f32| x.floor();
    /// `cvt.rni.s32.f32`: to the nearest integer, ties to even; out of range saturates, NaN is 0.
    to_i32_round(f32) -> i32, "cvt.rni.s32.f32", reg32 -> reg32, |x: f32| x.round_ties_even() as i32;
    /// `cvt.rzi.s32.f32`: to the integer towards 0; out of range saturates, NaN is 0.
    to_i32(f32) -> i32, "cvt.rzi.s32.f32", reg32 -> reg32, |x: f32| x as i32;
    /// `cvt.rzi.u32.f32`: to the integer towards 0; out of range saturates, NaN is 0.
    to_u32(f32) -> u32, "cvt.rzi.u32.f32", reg32 -> reg32, |x: f32| x as u32;
    /// `cvt.rn.f32.s32`: the nearest float.
    from_i32(i32) -> f32, "cvt.rn.f32.s32", reg32 -> reg32, |x: i32| x as f32;
    /// `cvt.rn.f32.u32`: the nearest float.
    from_u32(u32) -> f32, "cvt.rn.f32.u32", reg32 -> reg32, |x: u32| x as f32;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident, $instruction:literal, $host:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[must_use]
        pub fn $name(a: f32, b: f32) -> f32 {
            on! { ptx {
                let y: f32;
                // SAFETY: a pure instruction on registers.
                unsafe { core::arch::asm!(concat!($instruction, " {y}, {a}, {b};"), y = out(reg32) y, a = in(reg32) a, b = in(reg32) b, options(pure, nomem, nostack)) };
                y
            } emu { ($host)(a, b) } }
        }
    )*};
}

binary! {
    /// `min.f32`: the smaller; the other one where one is NaN.
    min, "min.f32", f32::min;
    /// `max.f32`: the larger; the other one where one is NaN.
    max, "max.f32", f32::max;
    /// `div.rn.f32`: the quotient, correctly rounded.
    div, "div.rn.f32", core::ops::Div::div;
    /// `div.approx.f32`: the quotient within 2 ulp, for divisors from 2^-126 to 2^126.
    div_approx, "div.approx.f32", core::ops::Div::div;
}

/// Subnormals as 0, sign kept: `.ftz`.
#[cfg(not(target_arch = "nvptx64"))]
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// `fma.rn.f32`: `a * b + c` with one rounding.
#[inline(always)]
#[must_use]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    on! { ptx {
        // SAFETY: a pure instruction on registers.
        unsafe { crate::llvm::fma(a, b, c) }
    } emu { a.mul_add(b, c) } }
}

/// e^x within 2 ulp where the result is a normal float; 0 below it.
///
/// The fraction of x·log2 e is formed in two parts, so that large |x| lose nothing, and goes to `ex2.approx`.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    // log2 e as a float and the rest of it.
    const HIGH: f32 = core::f32::consts::LOG2_E;
    const LOW: f32 = (core::f64::consts::LOG2_E - HIGH as f64) as f32;
    if x.is_nan() {
        return x;
    }
    let x = min(max(x, -104.0), 89.0);
    let whole = round(x * HIGH);
    let fraction = fma(x, LOW, fma(x, HIGH, -whole));
    // Two factors: the exponent of the result can lie one beyond that of a single one.
    let half = floor(whole * 0.5);
    exp2_approx(fraction) * exp2_approx(half) * exp2_approx(whole - half)
}

/// ln x within 3 ulp of the larger of the result and 1.
#[inline(always)]
#[must_use]
pub fn ln(x: f32) -> f32 {
    log2_approx(x) * core::f32::consts::LN_2
}

/// x·σ(x), the SiLU activation: `x / (1 + e^-x)`.
#[inline(always)]
#[must_use]
pub fn silu(x: f32) -> f32 {
    div(x, 1.0 + exp(-x))
}

/// [`silu`] to within a few units in the last place, by approximate instructions alone.
#[inline(always)]
#[must_use]
pub fn silu_approx(x: f32) -> f32 {
    x * rcp_approx(1.0 + exp2_approx(-x * core::f32::consts::LOG2_E))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_good_over_its_whole_range() {
        let mut worst = 0f64;
        for i in -8600..8800 {
            let x = i as f32 * 0.01;
            let want = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - want).abs() / want);
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "{worst:e}");
        assert_eq!(exp(-200.0), 0.0);
        assert_eq!(exp(200.0), f32::INFINITY);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn minimum_and_maximum_drop_nan() {
        assert_eq!(min(f32::NAN, 2.0), 2.0);
        assert_eq!(max(2.0, f32::NAN), 2.0);
    }

    #[test]
    fn conversions_round_as_named() {
        assert_eq!([to_i32_round(2.5), to_i32_round(3.5), to_i32_round(-2.5)], [2, 4, -2]);
        assert_eq!([to_i32(2.9), to_i32(-2.9), to_i32(1e20)], [2, -2, i32::MAX]);
        assert_eq!([to_u32(-1.0), to_u32(4e9)], [0, 4_000_000_000]);
        assert_eq!(from_i32(16_777_217), 16_777_216.0);
        assert_eq!([round(0.5), round(1.5), floor(-0.5)], [0.0, 2.0, -1.0]);
    }

    #[test]
    fn subnormals_are_flushed_where_the_instruction_does() {
        assert_eq!(exp2_approx(-130.0), 0.0);
        assert_eq!(rcp_approx(1e-40), f32::INFINITY);
        assert!(rcp(1e-38).is_finite());
    }

    #[test]
    fn silu_is_itself_for_large_and_nothing_for_small() {
        assert_eq!(silu(100.0), 100.0);
        assert_eq!(silu(-200.0), 0.0);
        assert!((silu(1.0) - 0.731_058_6).abs() < 1e-6);
    }
}
