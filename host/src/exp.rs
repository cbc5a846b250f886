//! One exponential for everything on the host: vectorises, and gives the same bits on every machine.

/// e^x within 1 ulp, from [`f32::mul_add`] alone (Cody–Waite reduction, degree-7 polynomial), so
/// that any machine with a fused multiply-add reproduces it bit for bit. 0 below −104, ∞ above
/// 88.7229; NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_145_75;
    const LN2_LOW: f32 = 1.428_606_8e-6;
    let k = (x.clamp(-150.0, 130.0) * std::f32::consts::LOG2_E).round_ties_even();
    let r = k.mul_add(-LN2_LOW, k.mul_add(-LN2_HIGH, x.clamp(-150.0, 130.0)));
    let mut p = 1.0f32 / 5040.0;
    for coefficient in [1.0f32 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p.mul_add(r, coefficient);
    }
    let half = (k * 0.5).floor();
    p * power_of_two(half) * power_of_two(k - half)
}

/// 2^k for an integral k in −126..=127.
#[inline(always)]
fn power_of_two(k: f32) -> f32 {
    // Adding 1.5·2^23 leaves k in the low bits of the mantissa: a conversion that vectorises.
    let bits = (k + 12_582_912.0).to_bits();
    f32::from_bits((bits.wrapping_sub(0x4B40_0000).wrapping_add(127)) << 23)
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn close_to_the_truth_everywhere() {
        let mut worst = 0.0f64;
        for i in -870_000..=887_000 {
            let x = i as f32 * 1e-4;
            let truth = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - truth).abs() / truth);
        }
        assert!(worst < 1.3e-7, "{worst}");
    }

    #[test]
    fn ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-104.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(88.73), f32::INFINITY);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(-103.0) > 0.0);
    }
}
