//! Distributions over the vocabulary, and how far two of them are apart.

use crate::engine::{EngineError, Result};

/// How many of the best tokens are compared.
const BEST: usize = 5;

/// What is expected after a token.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Of every token; minus infinity where nothing but an upper bound is known.
    logits: Vec<f32>,
    /// The logarithm of the sum of the logits' exponentials.
    log_sum: f64,
    /// The bound: `ln p` of the tokens without a logit is at most this.
    bound: f64,
}

/// One position of a text: how far a candidate is from its base there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// `Σ p · (ln p − ln q) − p + q`, p the base's probabilities and q the candidate's, over the tokens that both know:
    /// the KL divergence where both know all. No term is negative, so what is left out can only make it smaller.
    pub kl: f64,
    /// Whether both expect the same token most.
    pub same_best: bool,
    /// Tokens that are among the five best of both.
    pub common_best: usize,
    /// `−ln p` of the text's next token: the base's, the candidate's.
    pub nll: [f64; 2],
}

impl Distribution {
    /// The distribution of `logits`.
    ///
    /// # Errors
    /// A logit that is no finite number: nothing can be compared with it.
    pub fn new(logits: &[f32]) -> Result<Self> {
        if let Some(token) = logits.iter().position(|logit| !logit.is_finite()) {
            let problem = format!("the logit of token {token} is {}, not a number", logits[token]);
            return Err(EngineError::Invalid(problem));
        }
        let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
        Ok(Self {
            logits: logits.to_vec(),
            log_sum: largest + sum.ln(),
            bound: f64::NEG_INFINITY,
        })
    }

    /// The distribution of logarithms of probabilities, of which those that are minus infinity are only known to be at
    /// most `bound`.
    ///
    /// # Errors
    /// A logarithm that is no number, or infinite.
    pub fn bounded(log_probabilities: Vec<f32>, bound: f32) -> Result<Self> {
        let wrong = |log_p: f32| log_p.is_nan() || log_p == f32::INFINITY;
        if !bound.is_finite() || log_probabilities.iter().any(|&log_p| wrong(log_p)) {
            return Err(EngineError::Invalid("a probability is not a number".into()));
        }
        Ok(Self {
            logits: log_probabilities,
            log_sum: 0.0,
            bound: f64::from(bound),
        })
    }

    /// The logits.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// The logarithm of the sum of the logits' exponentials.
    pub fn log_sum(&self) -> f64 {
        self.log_sum
    }

    /// `ln p` of a token, or its upper bound.
    ///
    /// # Errors
    /// A token outside the vocabulary.
    pub fn log_probability(&self, token: u32) -> Result<f64> {
        let vocab_size = self.logits.len();
        let logit = self.logits.get(token as usize);
        let logit = logit.ok_or(EngineError::BadToken { token, vocab_size })?;
        Ok((f64::from(*logit) - self.log_sum).max(self.bound))
    }

    /// Compares `candidate` with this one, where the text goes on with `next`.
    ///
    /// # Errors
    /// Vocabularies of different sizes, or a token outside of them.
    pub fn compare(&self, candidate: &Self, next: u32) -> Result<Point> {
        if self.logits.len() != candidate.logits.len() {
            let sizes = [self, candidate].map(|side| side.logits.len());
            let problem = format!(
                "vocabularies of {} and {} tokens cannot be compared",
                sizes[0], sizes[1]
            );
            return Err(EngineError::Invalid(problem));
        }
        let (ours, theirs) = (self.best(), candidate.best());
        Ok(Point {
            kl: self.divergence(candidate),
            same_best: ours.first() == theirs.first(),
            common_best: ours.iter().filter(|&token| theirs.contains(token)).count(),
            nll: [-self.log_probability(next)?, -candidate.log_probability(next)?],
        })
    }

    fn divergence(&self, candidate: &Self) -> f64 {
        let known = |pair: &(&f32, &f32)| pair.0.is_finite() && pair.1.is_finite();
        let pairs = self.logits.iter().zip(&candidate.logits).filter(known);
        let terms = pairs.map(|(&ours, &theirs)| {
            let (log_p, log_q) = (f64::from(ours) - self.log_sum, f64::from(theirs) - candidate.log_sum);
            let (p, ratio) = (log_p.exp(), log_q - log_p);
            // e^r − 1 − r, without the cancellation for small r.
            p * (ratio.exp_m1() - ratio)
        });
        terms.sum()
    }

    /// The best tokens, best first; the lowest id first among equals.
    fn best(&self) -> Vec<u32> {
        let mut best: Vec<u32> = Vec::with_capacity(BEST + 1);
        for (id, &logit) in (0u32..).zip(&self.logits) {
            let place = best.partition_point(|&other| self.logits[other as usize] >= logit);
            if place < BEST {
                best.insert(place, id);
                best.truncate(BEST);
            }
        }
        best
    }
}

impl Point {
    /// By how much the candidate's probability of the text's next token exceeds the base's.
    pub fn delta_p(&self) -> f64 {
        (-self.nll[1]).exp() - (-self.nll[0]).exp()
    }

    /// The part of the five best tokens (of all, in a smaller vocabulary) that both share.
    pub fn overlap(&self, vocab_size: usize) -> f64 {
        self.common_best as f64 / BEST.min(vocab_size.max(1)) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(probabilities: &[f32]) -> Distribution {
        let logits: Vec<f32> = probabilities.iter().map(|p| p.ln() + 3.0).collect();
        Distribution::new(&logits).unwrap()
    }

    #[test]
    fn divergence_is_that_of_the_definition() {
        let (p, q) = (of(&[0.5, 0.25, 0.25]), of(&[0.25, 0.5, 0.25]));
        let point = p.compare(&q, 0).unwrap();
        let expected = 0.5 * 2f64.ln() - 0.25 * 2f64.ln();
        assert!((point.kl - expected).abs() < 1e-6, "{point:?}");
        assert!((point.nll[0] - 2f64.ln()).abs() < 1e-6 && (point.nll[1] - 4f64.ln()).abs() < 1e-6);
        assert!((point.delta_p() + 0.25).abs() < 1e-6);
        assert!(!point.same_best);
        assert_eq!(point.overlap(3), 1.0);
        assert!(p.compare(&p, 2).unwrap().kl < 1e-12);
    }

    #[test]
    fn tokens_without_a_logit_are_left_out() {
        let p = of(&[0.5, 0.3, 0.2]);
        let logs = |q: [f32; 3]| q.map(f32::ln).to_vec();
        let whole = Distribution::bounded(logs([0.6, 0.3, 0.1]), -30.0).unwrap();
        let mut part = logs([0.6, 0.3, 0.1]);
        part[2] = f32::NEG_INFINITY;
        let part = Distribution::bounded(part, -2.0).unwrap();
        let expected = 0.5 * (0.5f64 / 0.6).ln() + 0.2 * 2f64.ln();
        assert!((p.compare(&whole, 0).unwrap().kl - expected).abs() < 1e-6);
        let known = 0.5 * (0.5f64 / 0.6).ln() + 0.1;
        let point = p.compare(&part, 2).unwrap();
        assert!((point.kl - known).abs() < 1e-6, "{point:?}");
        assert_eq!(point.nll[1], 2.0);
        assert!(Distribution::bounded(vec![f32::NAN], -1.0).is_err());
    }

    #[test]
    fn the_five_best_come_in_order_and_ties_by_id() {
        let a = Distribution::new(&[1.0, 7.0, 3.0, 7.0, 5.0, 0.0, 4.0]).unwrap();
        assert_eq!(a.best(), [1, 3, 4, 6, 2]);
        let b = Distribution::new(&[9.0, 7.0, 3.0, 7.5, 5.0, 8.0, 4.0]).unwrap();
        let point = a.compare(&b, 0).unwrap();
        assert_eq!((point.common_best, point.same_best), (3, false));
        assert!((point.overlap(7) - 0.6).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        assert!(
            Distribution::new(&[1.0, f32::NAN])
                .unwrap_err()
                .to_string()
                .contains("token 1")
        );
        let (two, three) = (of(&[0.5, 0.5]), of(&[0.5, 0.25, 0.25]));
        assert!(two.compare(&three, 0).unwrap_err().to_string().contains("2 and 3"));
        assert!(matches!(
            two.compare(&two, 2),
            Err(EngineError::BadToken { token: 2, .. })
        ));
    }
}
