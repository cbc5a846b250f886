//! Rotary position embedding, every variant of which is one inverse frequency per pair.

use std::f64::consts::PI;

/// Which two values of a head are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeLayout {
    /// Pair i is (i, i + dims/2).
    Halves,
    /// Pair i is (2i, 2i + 1).
    Interleaved,
}

/// A stretch of the position axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Positions as they are.
    None,
    /// Positions divided by the factor.
    Linear(f64),
    /// YaRN (Peng et al. 2023): fast pairs as they are, slow ones divided, a ramp between.
    Yarn {
        /// How much longer than the original context.
        factor: f64,
        /// The context length that the model was trained with.
        original_context: f64,
        /// Multiplies sine and cosine, beside the paper's `1 + 0.1 ln factor`.
        attention_factor: f64,
    },
}

/// The rotation of a head: pair i of position p turns by `p · frequency_i`, and both values are
/// multiplied by a magnitude (1 except for YaRN). Values past `dims` stay as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Which values form a pair.
    pub layout: RopeLayout,
    /// Rotated values of a head; even.
    pub dims: usize,
    /// Base of the geometric series of frequencies.
    pub base: f64,
    /// A stretch of the position axis.
    pub scaling: RopeScaling,
    /// A divisor per pair (`dims / 2`), or empty.
    pub factors: Vec<f32>,
}

/// Turns over the original context beyond which a pair is left alone, and below which it is
/// divided (the paper's values).
const YARN_BETA: [f64; 2] = [32.0, 1.0];

impl Rope {
    /// Radians per position of each of the `dims / 2` pairs.
    pub fn frequencies(&self) -> Vec<f64> {
        (0..self.dims / 2)
            .map(|pair| self.stretch(pair, self.unscaled(pair)))
            .collect()
    }

    /// What sine and cosine are multiplied by.
    pub fn magnitude(&self) -> f32 {
        match self.scaling {
            RopeScaling::Yarn {
                factor,
                attention_factor,
                ..
            } => ((1.0 + 0.1 * factor.ln()) * attention_factor) as f32,
            _ => 1.0,
        }
    }

    fn unscaled(&self, pair: usize) -> f64 {
        let divisor = self.factors.get(pair).map_or(1.0, |&factor| f64::from(factor));
        self.base.powf(-2.0 * pair as f64 / self.dims as f64) / divisor
    }

    fn stretch(&self, pair: usize, frequency: f64) -> f64 {
        match self.scaling {
            RopeScaling::None => frequency,
            RopeScaling::Linear(factor) => frequency / factor,
            RopeScaling::Yarn {
                factor,
                original_context,
                ..
            } => {
                let keep = 1.0 - self.yarn_ramp(pair, original_context);
                frequency * (keep + (1.0 - keep) / factor)
            }
        }
    }

    /// 0 for the fast pairs, 1 for the slow ones.
    fn yarn_ramp(&self, pair: usize, original_context: f64) -> f64 {
        let dims = self.dims as f64;
        let pair_that_turns = |turns: f64| dims * (original_context / (turns * 2.0 * PI)).ln() / (2.0 * self.base.ln());
        let low = pair_that_turns(YARN_BETA[0]).floor().max(0.0);
        let high = pair_that_turns(YARN_BETA[1]).ceil().min(dims - 1.0);
        ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(scaling: RopeScaling) -> Rope {
        Rope {
            layout: RopeLayout::Halves,
            dims: 128,
            base: 1e6,
            scaling,
            factors: Vec::new(),
        }
    }

    #[test]
    fn plain_and_linear() {
        let plain = rope(RopeScaling::None).frequencies();
        assert_eq!((plain.len(), plain[0]), (64, 1.0));
        assert!((plain[32] - 1e-3).abs() < 1e-15);
        let linear = rope(RopeScaling::Linear(8.0));
        assert_eq!(linear.frequencies()[0], 0.125);
        assert_eq!(linear.magnitude(), 1.0);
    }

    #[test]
    fn factors_divide() {
        let mut rope = rope(RopeScaling::None);
        rope.factors = vec![4.0; 64];
        assert_eq!(rope.frequencies()[0], 0.25);
    }

    /// Qwen3's recipe: factor 4 over 32,768. low = floor(128·ln(32768/64π)/(2 ln 1e6)) = 23,
    /// high = ceil(128·ln(32768/2π)/(2 ln 1e6)) = 40.
    #[test]
    fn yarn_keeps_fast_pairs_and_divides_slow_ones() {
        let yarn = rope(RopeScaling::Yarn {
            factor: 4.0,
            original_context: 32768.0,
            attention_factor: 1.0,
        });
        let (plain, scaled) = (rope(RopeScaling::None).frequencies(), yarn.frequencies());
        let ratio: Vec<f64> = plain.iter().zip(&scaled).map(|(p, s)| s / p).collect();
        assert_eq!((ratio[0], ratio[23]), (1.0, 1.0));
        assert!((ratio[24] - (1.0 - 0.75 / 17.0)).abs() < 1e-12, "{}", ratio[24]);
        assert!((ratio[40] - 0.25).abs() < 1e-15 && (ratio[63] - 0.25).abs() < 1e-15);
        assert!((yarn.magnitude() - 1.138_629_4).abs() < 1e-6);
    }
}
