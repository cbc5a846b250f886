//! 16-bit floats: conversions, and arithmetic on pairs in one register.

use half::{bf16, f16};

/// `cvt.f32.f16`: exact.
#[inline(always)]
#[must_use]
pub fn f16_to_f32(x: f16) -> f32 {
    on! { ptx {
        let y: f32;
        // SAFETY: a pure instruction on registers.
        unsafe { core::arch::asm!("cvt.f32.f16 {y}, {x};", y = out(reg32) y, x = in(reg16) x.to_bits(), options(pure, nomem, nostack)) };
        y
    } emu { x.to_f32() } }
}

/// `cvt.rn.f16.f32`: rounds to nearest even; too large is infinity.
#[inline(always)]
#[must_use]
pub fn f32_to_f16(x: f32) -> f16 {
    on! { ptx {
        let y: u16;
        // SAFETY: a pure instruction on registers.
        unsafe { core::arch::asm!("cvt.rn.f16.f32 {y}, {x};", y = out(reg16) y, x = in(reg32) x, options(pure, nomem, nostack)) };
        f16::from_bits(y)
    } emu { f16::from_f32(x) } }
}

/// A bf16 as f32: its bits are the upper half; a shift.
#[inline(always)]
#[must_use]
pub fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// `cvt.rn.bf16.f32`: rounds to nearest even.
#[inline(always)]
#[must_use]
pub fn f32_to_bf16(x: f32) -> bf16 {
    on! { ptx {
        let y: u16;
        // SAFETY: a pure instruction on registers.
        unsafe { core::arch::asm!("cvt.rn.bf16.f32 {y}, {x};", y = out(reg16) y, x = in(reg32) x, options(pure, nomem, nostack)) };
        bf16::from_bits(y)
    } emu { bf16::from_f32(x) } }
}

macro_rules! pair {
    ($(#[$doc:meta])* $name:ident, $half:ident, $suffix:literal) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
        pub struct $name(pub u32);

        impl $name {
            /// The pair of two values; the first in the lower half.
            #[inline(always)]
            #[must_use]
            pub const fn new(low: $half, high: $half) -> Self {
                Self(low.to_bits() as u32 | (high.to_bits() as u32) << 16)
            }

            /// The value in the lower half.
            #[inline(always)]
            #[must_use]
            pub const fn low(self) -> $half {
                $half::from_bits(self.0 as u16)
            }

            /// The value in the upper half.
            #[inline(always)]
            #[must_use]
            pub const fn high(self) -> $half {
                $half::from_bits((self.0 >> 16) as u16)
            }

            #[doc = concat!("`cvt.rn.", $suffix, ".f32`: two floats, each rounded to nearest even.")]
            #[inline(always)]
            #[must_use]
            pub fn from_f32(low: f32, high: f32) -> Self {
                on! { ptx {
                    let y: u32;
                    // SAFETY: a pure instruction on registers.
                    unsafe { core::arch::asm!(concat!("cvt.rn.", $suffix, ".f32 {y}, {h}, {l};"), y = out(reg32) y, h = in(reg32) high, l = in(reg32) low, options(pure, nomem, nostack)) };
                    Self(y)
                } emu { Self::new($half::from_f32(low), $half::from_f32(high)) } }
            }

            pair! { @operations $half, $suffix;
                #[doc = concat!("`fma.rn.", $suffix, "`: `self * b + c`, each with one rounding.")]
                fma(b, c) "fma.rn.", |a: f64, b: f64, c: f64| odd_sum(a * b, c);
            }
        }
    };
    (@operations $half:ident, $suffix:literal; $(#[$doc:meta])* $name:ident($b:ident, $c:ident) $instruction:literal, $host:expr;) => {
        $(#[$doc])*
        #[inline(always)]
        #[must_use]
        pub fn $name(self, $b: Self, $c: Self) -> Self {
            on! { ptx {
                let y: u32;
                // SAFETY: a pure instruction on registers.
                unsafe { core::arch::asm!(concat!($instruction, $suffix, " {y}, {a}, {b}, {c};"), y = out(reg32) y, a = in(reg32) self.0, b = in(reg32) $b.0, c = in(reg32) $c.0, options(pure, nomem, nostack)) };
                Self(y)
            } emu {
                let each = |a: $half, b: $half, c: $half| $half::from_f32(odd_f32($host(a.to_f64(), b.to_f64(), c.to_f64())));
                Self::new(each(self.low(), $b.low(), $c.low()), each(self.high(), $b.high(), $c.high()))
            } }
        }
    };
}

pair!(
    /// Two f16 in one register.
    F16x2, f16, "f16x2"
);
pair!(
    /// Two bf16 in one register.
    Bf16x2, bf16, "bf16x2"
);

macro_rules! f16_pairs {
    ($($(#[$doc:meta])* $name:ident, $instruction:literal, $host:expr;)*) => {
        impl F16x2 {$(
            $(#[$doc])*
            #[inline(always)]
            #[must_use]
            #[allow(clippy::should_implement_trait)]
            pub fn $name(self, b: Self) -> Self {
                on! { ptx {
                    let y: u32;
                    // SAFETY: a pure instruction on registers.
                    unsafe { core::arch::asm!(concat!($instruction, " {y}, {a}, {b};"), y = out(reg32) y, a = in(reg32) self.0, b = in(reg32) b.0, options(pure, nomem, nostack)) };
                    Self(y)
                } emu {
                    let each = |a: f16, b: f16| f16::from_f32($host(a.to_f32(), b.to_f32()));
                    Self::new(each(self.low(), b.low()), each(self.high(), b.high()))
                } }
            }
        )*}
    };
}
f16_pairs! {
    /// `add.rn.f16x2`.
    add, "add.rn.f16x2", core::ops::Add::add;
    /// `sub.rn.f16x2`.
    sub, "sub.rn.f16x2", core::ops::Sub::sub;
    /// `mul.rn.f16x2`.
    mul, "mul.rn.f16x2", core::ops::Mul::mul;
    /// `max.f16x2`: the other one where one is NaN.
    max, "max.f16x2", f32::max;
    /// `min.f16x2`: the other one where one is NaN.
    min, "min.f16x2", f32::min;
}

impl F16x2 {
    /// Both values as floats: two `cvt.f32.f16`.
    #[inline(always)]
    #[must_use]
    pub fn to_f32(self) -> [f32; 2] {
        [f16_to_f32(self.low()), f16_to_f32(self.high())]
    }
}

impl Bf16x2 {
    /// Both values as floats: a shift and a mask.
    #[inline(always)]
    #[must_use]
    pub fn to_f32(self) -> [f32; 2] {
        [f32::from_bits(self.0 << 16), f32::from_bits(self.0 & 0xffff_0000)]
    }
}

/// a + b rounded to odd: rounding that once more, to fewer bits, gives what a single rounding would.
#[cfg(not(target_arch = "nvptx64"))]
fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    let rest_of_b = sum - a;
    let error = (a - (sum - rest_of_b)) + (b - rest_of_b);
    if error == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// An f64 rounded to an odd f32, for the same reason.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn odd_f32(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) == x || !near.is_finite() || near.to_bits() & 1 == 1 {
        return near;
    }
    let away = x.abs() > f64::from(near).abs();
    f32::from_bits(if away { near.to_bits() + 1 } else { near.to_bits() - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_survives() {
        for bits in 0..=u16::MAX {
            let x = f16::from_bits(bits);
            if !x.is_nan() {
                assert_eq!(f32_to_f16(f16_to_f32(x)).to_bits(), bits);
            }
            let x = bf16::from_bits(bits);
            if !x.is_nan() {
                assert_eq!(f32_to_bf16(bf16_to_f32(x)).to_bits(), bits);
            }
        }
    }

    #[test]
    fn conversion_rounds_to_even() {
        assert_eq!(f32_to_f16(2049.0).to_f32(), 2048.0);
        assert_eq!(f32_to_f16(2051.0).to_f32(), 2052.0);
        assert_eq!(f32_to_f16(70000.0).to_f32(), f32::INFINITY);
        assert_eq!(f32_to_bf16(257.0).to_f32(), 256.0);
    }

    #[test]
    fn a_fused_product_is_rounded_once() {
        // Half an ulp above 1 is a tie, and a little more is not.
        let one = F16x2::from_f32(1.0, 1.0);
        let c = F16x2::from_f32(1.0, 2.0);
        let tiny = F16x2::from_f32(4.8828125e-4, 9.765625e-4);
        assert_eq!(tiny.fma(one, c).to_f32(), [1.0, 2.0]);
        let more = F16x2::from_f32(4.887e-4, 9.78e-4);
        assert_eq!(more.fma(one, c).to_f32(), [1.0 + 1.0 / 1024.0, 2.0 + 1.0 / 512.0]);
        let b = Bf16x2::from_f32(3.0, -2.0);
        assert_eq!(
            b.fma(Bf16x2::from_f32(5.0, 7.0), Bf16x2::from_f32(1.0, 1.0)).to_f32(),
            [16.0, -13.0]
        );
    }

    #[test]
    fn a_sum_rounded_to_odd_keeps_what_was_lost() {
        assert_eq!(odd_sum(1.0, 1e-30), 1.0 + f64::EPSILON);
        assert_eq!(odd_sum(1.0, -1e-30), 1.0 - f64::EPSILON / 2.0);
        assert_eq!(odd_sum(1.5, 0.25), 1.75);
        assert_eq!(odd_sum(-1.0, 1e-30), -1.0 + f64::EPSILON / 2.0);
    }

    #[test]
    fn pairs_keep_their_order() {
        let (a, b) = (F16x2::from_f32(1.0, 2.0), F16x2::from_f32(4.0, -8.0));
        assert_eq!(a.low().to_f32(), 1.0);
        assert_eq!(a.add(b).to_f32(), [5.0, -6.0]);
        assert_eq!(a.sub(b).to_f32(), [-3.0, 10.0]);
        assert_eq!(a.mul(b).to_f32(), [4.0, -16.0]);
        assert_eq!(a.max(b).to_f32(), [4.0, 2.0]);
        assert_eq!(a.min(b).to_f32(), [1.0, -8.0]);
    }
}
