//! Random numbers without state, and the exponential, as the host has them.

use cuda_std::prelude::*;

/// Ten rounds of Philox-4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) over `counter` under
/// `key`.
#[inline(always)]
#[must_use]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut round = 0;
    while round < 10 {
        let (p, q) = (0xD251_1F53 * counter[0] as u64, 0xCD9E_8D57 * counter[2] as u64);
        counter = [
            (q >> 32) as u32 ^ counter[1] ^ key[0],
            q as u32,
            (p >> 32) as u32 ^ counter[3] ^ key[1],
            p as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        round += 1;
    }
    counter
}

/// The `step`-th number of the sequence of `seed`, in [0, 1): 24 bits of the first word.
#[inline(always)]
#[must_use]
pub fn uniform(seed: [u32; 2], step: u64) -> f32 {
    (philox([step as u32, (step >> 32) as u32, 0, 0], seed)[0] >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// e^x within 1 ulp by fused multiply-adds alone, so that the host's sampler gets the same bits: Cody and Waite's
/// reduction and a polynomial of degree 7.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    let x = float::min(float::max(x, -150.0), 130.0);
    let k = float::round(x * core::f32::consts::LOG2_E);
    let r = float::fma(k, -1.428_606_8e-6, float::fma(k, -0.693_145_75, x));
    let coefficients = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let mut p = 1.0 / 5040.0;
    unroll!(for I in 0..7 {
        p = float::fma(p, r, coefficients[I]);
    });
    let half = float::floor(k * 0.5);
    p * power_of_two(half) * power_of_two(k - half)
}

/// 2^k for a whole k in -126..=127.
#[inline(always)]
fn power_of_two(k: f32) -> f32 {
    let bits = (k + 12_582_912.0).to_bits();
    f32::from_bits((bits.wrapping_sub(0x4B40_0000).wrapping_add(127)) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the Random123 library.
    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(
            philox([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        let (counter, key) = (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
        );
        assert_eq!(
            philox(counter, key),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn the_exponential_is_good_to_an_ulp() {
        for i in -8700..=8800 {
            let x = i as f32 * 1e-2;
            let truth = f64::from(x).exp();
            assert!((f64::from(exp(x)) - truth).abs() <= 1.3e-7 * truth, "{x}");
        }
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    }
}
