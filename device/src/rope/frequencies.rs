//! The table of rotation frequencies: what a model's metadata says about positions, worked out in f64 once.

use cuda_std::F32x2;
use std::f64::consts::{PI, TAU};

/// YaRN: dims that turn fast keep their frequency, slow ones are interpolated, those between are mixed
/// (Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// Context length that the model was trained for first.
    pub original_context: f64,
    /// Weight of the mix, usually 1; 0 interpolates all dims alike.
    pub extrapolation: f64,
    /// Turns over the original context above which a dim keeps its frequency, usually 32.
    pub beta_fast: f64,
    /// Turns below which it is interpolated fully, usually 1.
    pub beta_slow: f64,
}

/// What decides the angle a step of each pair of dims.
#[derive(Clone, Debug, PartialEq)]
pub struct Frequencies {
    /// Rotated dims.
    pub rotary: u32,
    /// Base of the geometric series, say 10,000.
    pub base: f64,
    /// Divides the frequency of each pair (long-context factors of the file); empty is 1 for all.
    pub factors: Vec<f32>,
    /// Linear scaling: multiplies all frequencies; a context stretched fourfold has 1/4.
    pub scale: f64,
    /// Scaling that depends on the dim.
    pub yarn: Option<Yarn>,
}

impl Frequencies {
    /// A plain table.
    pub fn new(rotary: u32, base: f64) -> Self {
        Self {
            rotary,
            base,
            factors: Vec::new(),
            scale: 1.0,
            yarn: None,
        }
    }

    /// Radians a step of each pair.
    pub fn theta(&self) -> Vec<f64> {
        (0..self.rotary / 2).map(|pair| self.theta_of(pair)).collect()
    }

    fn theta_of(&self, pair: u32) -> f64 {
        let factor = self.factors.get(pair as usize).map_or(1.0, |f| f64::from(*f));
        let own = self.base.powf(-2.0 * f64::from(pair) / f64::from(self.rotary)) / factor;
        let stretched = self.scale * own;
        match &self.yarn {
            Some(yarn) => {
                let keep = self.kept(yarn, pair) * yarn.extrapolation;
                stretched * (1.0 - keep) + own * keep
            }
            None => stretched,
        }
    }

    /// How much of its own frequency a pair keeps: 1 for fast pairs, 0 for slow ones, linear between.
    fn kept(&self, yarn: &Yarn, pair: u32) -> f64 {
        let last = f64::from(self.rotary) - 1.0;
        let low = self.pair_of_turns(yarn, yarn.beta_fast).floor().clamp(0.0, last);
        let high = self.pair_of_turns(yarn, yarn.beta_slow).ceil().clamp(0.0, last);
        1.0 - ((f64::from(pair) - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
    }

    /// The pair that makes this many turns over the original context.
    fn pair_of_turns(&self, yarn: &Yarn, turns: f64) -> f64 {
        f64::from(self.rotary) * (yarn.original_context / (turns * 2.0 * PI)).ln() / (2.0 * self.base.ln())
    }

    /// What multiplies the rotated dims: YaRN's attention temperature, else 1.
    pub fn magnitude(&self) -> f32 {
        match &self.yarn {
            Some(yarn) if yarn.extrapolation != 0.0 => (1.0 + 0.1 * self.scale.recip().ln()) as f32,
            _ => 1.0,
        }
    }

    /// The device's table of these frequencies.
    pub fn table(&self) -> Vec<F32x2> {
        table(&self.theta())
    }
}

/// The device's table of frequencies in radians a step: turns a step, each as the sum of two floats.
pub fn table(radians: &[f64]) -> Vec<F32x2> {
    let split = |turns: f64| F32x2([turns as f32, (turns - f64::from(turns as f32)) as f32]);
    radians.iter().map(|theta| split(theta / TAU)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_geometric_and_factors_divide() {
        let mut f = Frequencies::new(8, 10_000.0);
        assert!(
            f.theta()
                .iter()
                .zip([1.0, 0.1, 0.01, 0.001])
                .all(|(theta, want)| (theta - want).abs() < 1e-15)
        );
        f.factors = vec![1.0, 2.0, 4.0, 8.0];
        assert!((f.theta()[3] * 8.0 - 0.001).abs() < 1e-15);
        f.scale = 0.25;
        assert!((f.theta()[0] - 0.25).abs() < 1e-15);
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_stretches_slow_ones() {
        let yarn = Yarn {
            original_context: 32768.0,
            extrapolation: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
        };
        let plain = Frequencies::new(128, 1e6).theta();
        let f = Frequencies {
            scale: 0.25,
            yarn: Some(yarn),
            ..Frequencies::new(128, 1e6)
        };
        let theta = f.theta();
        assert_eq!(theta[0], plain[0]);
        assert!((theta[63] - plain[63] / 4.0).abs() < 1e-18);
        assert!(theta.windows(2).all(|w| w[0] > w[1]));
        assert!((f.magnitude() - 1.138_629_4).abs() < 1e-6);
        assert_eq!(Frequencies::new(128, 1e6).magnitude(), 1.0);
    }

    #[test]
    fn rotations_are_right_at_long_positions() {
        let f = Frequencies::new(128, 1e6);
        let mut worst = 0f64;
        for position in [0u32, 1, 2, 1000, 4095, 32767, 40000, 131071, 1 << 20] {
            for (pair, theta) in f.table().into_iter().zip(f.theta()) {
                let (sin, cos) = super::super::rotation(position, pair);
                let (s, c) = (theta * f64::from(position)).sin_cos();
                worst = worst.max((f64::from(sin) - s).abs()).max((f64::from(cos) - c).abs());
            }
        }
        assert!(worst < 4e-7, "{worst:e}");
    }
}
