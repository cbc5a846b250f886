//! The sampler's settings and their limits.

/// How to choose a token. The default is greedy: the highest logit.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleOptions {
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Keeps the k highest logits; 0 keeps all.
    pub top_k: usize,
    /// Keeps the smallest set of likeliest tokens whose probabilities sum to at least this; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as likely as the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Divides the positive and multiplies the negative logits of recent tokens; 1 changes nothing.
    pub repeat_penalty: f32,
    /// How many recent tokens count as recent; 0 switches the penalty off.
    pub repeat_last_n: usize,
    /// Key of the random numbers.
    pub seed: u64,
    /// Tokens that are never chosen.
    pub suppress: Vec<u32>,
}

impl Default for SampleOptions {
    fn default() -> Self {
        SampleOptions {
            temperature: 0.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            seed: 0,
            suppress: Vec::new(),
        }
    }
}

/// A setting outside its limits.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name} is {value}, but must be {limits}")]
pub struct OptionError {
    name: &'static str,
    value: f32,
    limits: &'static str,
}

impl SampleOptions {
    /// Whether the highest logit wins, without chance.
    pub fn greedy(&self) -> bool {
        self.temperature <= 0.0
    }

    /// Whether the choice is the highest of the logits as they are: no chance, no penalty, nothing suppressed.
    pub fn is_argmax(&self) -> bool {
        self.greedy() && self.suppress.is_empty() && !self.penalises()
    }

    /// Whether recent tokens are made less likely.
    pub fn penalises(&self) -> bool {
        self.repeat_penalty != 1.0 && self.repeat_last_n > 0
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// Names the first setting that is not finite or outside its limits.
    pub fn check(&self) -> Result<(), OptionError> {
        let check = |name, value: f32, ok: bool, limits| {
            if value.is_finite() && ok {
                Ok(())
            } else {
                Err(OptionError { name, value, limits })
            }
        };
        check(
            "temperature",
            self.temperature,
            self.temperature >= 0.0,
            "0 or more, and finite",
        )?;
        check(
            "top-p",
            self.top_p,
            (0.0..=1.0).contains(&self.top_p),
            "between 0 and 1",
        )?;
        check(
            "min-p",
            self.min_p,
            (0.0..=1.0).contains(&self.min_p),
            "between 0 and 1",
        )?;
        check(
            "repeat-penalty",
            self.repeat_penalty,
            self.repeat_penalty > 0.0,
            "above 0, and finite",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let ok = SampleOptions::default();
        assert_eq!(ok.check(), Ok(()));
        for bad in [
            SampleOptions {
                temperature: f32::NAN,
                ..ok.clone()
            },
            SampleOptions {
                temperature: -1.0,
                ..ok.clone()
            },
            SampleOptions {
                top_p: 1.5,
                ..ok.clone()
            },
            SampleOptions {
                min_p: -0.1,
                ..ok.clone()
            },
            SampleOptions {
                repeat_penalty: 0.0,
                ..ok.clone()
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
