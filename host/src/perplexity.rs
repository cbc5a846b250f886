//! Perplexity of a text, as llama.cpp's `llama-perplexity` computes it.
//!
//! The text's tokens are cut into windows of n; a rest shorter than n is left out. Each window is computed
//! on its own. If the model begins texts with a token (BOS), that replaces the window's first token. The
//! predictions of the second half are scored: token i + 1 from the logits after token i, for i from n/2 to
//! n − 2, so that each has at least n/2 tokens of context.

use crate::engine::{Engine, EngineError, Result, no_number};

/// A perplexity and what it was computed from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Perplexity {
    /// e to the mean negative log-likelihood.
    pub value: f64,
    /// Standard error of the value.
    pub error: f64,
    /// Tokens that were scored.
    pub tokens: usize,
    /// Windows.
    pub windows: usize,
}

/// Negative log-likelihoods so far.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    nll: f64,
    squares: f64,
    tokens: usize,
    windows: usize,
}

/// Computes the perplexity of `tokens` (without BOS) in windows of `window`, with `bos` if the model adds
/// one. After each window `each` is given the perplexity so far.
///
/// # Errors
/// A window of less than 4 tokens or more than the engine's context, less than one window of text, logits that are no
/// numbers, or a failure of the engine.
pub fn perplexity(
    engine: &mut dyn Engine,
    tokens: &[u32],
    window: usize,
    bos: Option<u32>,
    each: &mut dyn FnMut(&Perplexity),
) -> Result<Perplexity> {
    check(engine, tokens, window)?;
    let mut sum = Sum::default();
    for text in tokens.chunks_exact(window) {
        sum.add_window(engine, text, bos)?;
        each(&sum.perplexity());
    }
    engine.reset();
    Ok(sum.perplexity())
}

fn check(engine: &dyn Engine, tokens: &[u32], window: usize) -> Result<()> {
    let problem = if window < 4 {
        format!("a window of {window} tokens is too short to score: 4 at least")
    } else if window > engine.context() {
        format!(
            "a window of {window} tokens exceeds the context of {}",
            engine.context()
        )
    } else if tokens.len() < window {
        format!(
            "the text has {} tokens, less than one window of {window}: take a longer text or smaller windows",
            tokens.len()
        )
    } else {
        return Ok(());
    };
    Err(EngineError::Invalid(problem))
}

impl Sum {
    fn add_window(&mut self, engine: &mut dyn Engine, text: &[u32], bos: Option<u32>) -> Result<()> {
        let mut input = text.to_vec();
        input[0] = bos.unwrap_or(input[0]);
        engine.reset();
        engine.logits_of_all(&input, text.len() / 2, &mut |i, logits| {
            if let Some(&next) = text.get(i + 1) {
                let nll = negative_log_likelihood(logits, next);
                if !nll.is_finite() {
                    return Err(no_number());
                }
                self.nll += nll;
                self.squares += nll * nll;
                self.tokens += 1;
            }
            Ok(())
        })?;
        self.windows += 1;
        Ok(())
    }

    fn perplexity(&self) -> Perplexity {
        let count = self.tokens as f64;
        let mean = self.nll / count;
        let variance = (self.squares / count - mean * mean).max(0.0);
        let value = mean.exp();
        let error = value * (variance / (count - 1.0).max(1.0)).sqrt();
        Perplexity {
            value,
            error,
            tokens: self.tokens,
            windows: self.windows,
        }
    }
}

/// `−ln softmax(logits)[token]`, in f64.
pub fn negative_log_likelihood(logits: &[f32], token: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits
        .iter()
        .map(|&logit| f64::from(crate::exp::exp(logit - max)))
        .sum();
    let chosen = logits.get(token as usize).copied().unwrap_or(f32::NAN);
    f64::from(max - chosen) + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Description;

    /// Gives a token the probability 1/2 if it follows the last one, the rest sharing the other half.
    struct Successor {
        seen: Vec<Vec<u32>>,
        damaged: bool,
        description: Description,
    }

    const VOCAB: u32 = 9;

    impl Engine for Successor {
        fn prefill(&mut self, _: &[u32]) -> Result<&[f32]> {
            Err(EngineError::Empty)
        }
        fn decode(&mut self, _: u32) -> Result<&[f32]> {
            Err(EngineError::Empty)
        }
        fn logits_of_all(
            &mut self,
            tokens: &[u32],
            from: usize,
            each: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
        ) -> Result<()> {
            self.seen.push(tokens.to_vec());
            for i in from..tokens.len() {
                let mut logits = [(1.0f32 / 16.0).ln(); VOCAB as usize];
                logits[((tokens[i] + 1) % VOCAB) as usize] = if self.damaged { f32::NAN } else { 0.5f32.ln() };
                each(i, &logits)?;
            }
            Ok(())
        }
        fn truncate(&mut self, _: usize) {}
        fn position(&self) -> usize {
            0
        }
        fn context(&self) -> usize {
            8
        }
        fn vocab_size(&self) -> usize {
            VOCAB as usize
        }
        fn description(&self) -> &Description {
            &self.description
        }
    }

    fn successor() -> Successor {
        let description = Description {
            model: String::new(),
            device: String::new(),
            weight_bytes: 0,
            kv_bytes: 0,
            kv: crate::model::KvType::F16,
        };
        Successor {
            seen: Vec::new(),
            damaged: false,
            description,
        }
    }

    #[test]
    fn second_halves_are_scored_and_bos_replaces_the_first_token() {
        let mut engine = successor();
        // Window 1 continues by successors; of window 2's three scored tokens one does not.
        let tokens = [0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 1, 2, 2, 3, 4, 4];
        let mut windows = Vec::new();
        let p = perplexity(&mut engine, &tokens, 8, Some(8), &mut |p| windows.push(p.value)).unwrap();
        assert_eq!(engine.seen, [[8, 1, 2, 3, 4, 5, 6, 7], [8, 0, 0, 0, 1, 2, 2, 3]]);
        assert_eq!((p.tokens, p.windows), (6, 2));
        assert!((windows[0] - 2.0).abs() < 1e-6);
        let expected = (5.0 * 2f64.ln() + 16f64.ln()) / 6.0;
        assert!((p.value.ln() - expected).abs() < 1e-6);
        let variance = (5.0 * 2f64.ln().powi(2) + 16f64.ln().powi(2)) / 6.0 - expected * expected;
        assert!((p.error - p.value * (variance / 5.0).sqrt()).abs() < 1e-5);
    }

    #[test]
    fn what_cannot_be_scored_is_refused() {
        let run = |tokens: &[u32], window| {
            perplexity(&mut successor(), tokens, window, None, &mut |_| ())
                .unwrap_err()
                .to_string()
        };
        assert!(run(&[0; 20], 3).contains("4 at least"));
        assert!(run(&[0; 20], 9).contains("exceeds the context of 8"));
        assert!(run(&[0; 7], 8).contains("7 tokens, less than one window of 8"));
    }

    #[test]
    fn likelihood_of_wild_logits() {
        assert!((negative_log_likelihood(&[1000.0, 1000.0], 0) - 2f64.ln()).abs() < 1e-7);
        assert!(negative_log_likelihood(&[f32::NAN, 0.0], 0).is_nan());
    }

    #[test]
    fn logits_that_are_no_numbers_are_refused() {
        let mut engine = successor();
        engine.damaged = true;
        let error = perplexity(&mut engine, &[0; 8], 8, None, &mut |_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains("is a number"), "{error}");
    }
}
