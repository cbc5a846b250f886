//! Trials on a real engine: what its steps and prompts take, and whether they still give the same.

use std::time::Instant;

use super::search::Trials;
use super::{Tuning, Workload};
use crate::accuracy::Distribution;
use crate::bench::{PromptTokens, Spread, decode_rate, prompt_rate};
use crate::engine::{Engine, EngineError, Result, Sequence};
use crate::gpu::{Backend, GpuEngine};

/// Lengths of the short prompts that are timed.
const SHORT_PROMPTS: std::ops::RangeInclusive<usize> = 2..=12;
/// Lengths of the short prompts whose results are compared.
const COMPARED_PROMPTS: [usize; 3] = [2, 5, 11];
/// Tokens at each depth, and at the end of the long prompt, behind which results are compared.
const COMPARED: usize = 5;
/// Divergence (KL) at the middle one of some positions that rounding does not explain. Single positions may be far
/// apart: where two experts or tokens are equally good but for rounding, another one is chosen.
const MOST_DIVERGENCE: f64 = 1e-4;

/// What trials are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialSizes {
    /// Tokens in the cache where decoding is timed, the smallest first, none twice.
    pub depths: Vec<usize>,
    /// Tokens that are decoded.
    pub tokens: usize,
    /// Tokens of the long prompt.
    pub prompt: usize,
}

impl TrialSizes {
    /// For a model that is made for `most` tokens: of `depths` those that leave room, and a prompt that fits.
    pub fn fitting(depths: &[usize], tokens: usize, prompt: usize, most: usize) -> Self {
        let mut depths = depths.to_vec();
        depths.retain(|depth| depth.saturating_add(tokens + 2) <= most);
        depths.sort_unstable();
        depths.dedup();
        let prompt = prompt.min(most).max(1);
        Self { depths, tokens, prompt }
    }

    /// Tokens that the cache needs room for: the deepest sequence, of each a page that is its own and what it decodes,
    /// and the prompt beside them.
    pub fn context(&self) -> usize {
        let deepest = self.depths.last().copied().unwrap_or(0);
        deepest + (self.depths.len() + 1) * (self.tokens + COMPARED + 130) + self.prompt
    }
}

/// A sequence of a depth.
struct AtDepth {
    tokens: usize,
    /// None while it is the current one.
    sequence: Option<Sequence>,
}

/// What an engine computes, as groups of positions that are judged together.
type Results = Vec<Vec<Distribution>>;

/// An engine under trial.
pub struct EngineTrials<'a, B: Backend> {
    engine: &'a mut GpuEngine<B>,
    prompt: Vec<u32>,
    depths: Vec<AtDepth>,
    sizes: TrialSizes,
    expected: Results,
    deadline: Instant,
}

impl<'a, B: Backend> EngineTrials<'a, B> {
    /// Fills the caches of `engine`, which has room for [`TrialSizes::context`] tokens, and takes its results as the right
    /// ones.
    ///
    /// # Errors
    /// No depth, or the engine's.
    pub fn new(engine: &'a mut GpuEngine<B>, sizes: TrialSizes, deadline: Instant) -> Result<Self> {
        let Some(&deepest) = sizes.depths.last() else {
            return Err(EngineError::Invalid(
                "there is no depth that the model has room for".into(),
            ));
        };
        let count = deepest.max(sizes.prompt).max(*SHORT_PROMPTS.end()) + COMPARED;
        let prompt = PromptTokens::spread(engine.vocab_size(), count).into_ids();
        engine.reset();
        if deepest > 0 {
            engine.prefill(&prompt[..deepest])?;
        }
        let depths = sizes.depths.iter().map(|&tokens| {
            let sequence = Some(engine.fork(tokens)?);
            Ok(AtDepth { tokens, sequence })
        });
        let depths = depths.collect::<Result<Vec<_>>>()?;
        engine.reset();
        let expected = Vec::new();
        let mut trials = Self {
            engine,
            prompt,
            depths,
            sizes,
            expected,
            deadline,
        };
        trials.expected = trials.results()?;
        Ok(trials)
    }

    /// The depths.
    pub fn depths(&self) -> Vec<usize> {
        self.sizes.depths.clone()
    }

    /// Runs `run` with the sequence of depth number `index` as the current one, which is left as it was.
    fn at_depth<T>(&mut self, index: usize, run: impl FnOnce(&mut Self, usize) -> Result<T>) -> Result<T> {
        let AtDepth { tokens, sequence } = &mut self.depths[index];
        let (tokens, sequence) = (*tokens, sequence.take());
        let Some(sequence) = sequence else {
            return Err(EngineError::Invalid("the sequence is in use".into()));
        };
        let idle = self.engine.switch(sequence)?;
        let result = run(self, tokens);
        self.engine.truncate(tokens);
        self.depths[index].sequence = Some(self.engine.switch(idle)?);
        result
    }

    /// Milliseconds of a decoded token at depth number `index`, behind a warm-up of what was recorded anew.
    fn decode(&mut self, index: usize) -> Result<f64> {
        let tokens = self.sizes.tokens;
        self.at_depth(index, |trials, depth| {
            let first = trials.prompt[depth];
            let steps = trials.engine.tuning().map_or(1, |tuning| tuning.graph_steps as usize);
            decode_rate(trials.engine, first, steps + 1)?;
            Ok(1e3 / decode_rate(trials.engine, first, tokens)?)
        })
    }

    /// Milliseconds of a token at every depth: their geometric mean.
    fn all_depths(&mut self) -> Result<f64> {
        let mut sum = 0.0;
        for index in 0..self.depths.len() {
            sum += self.decode(index)?.ln();
        }
        Ok((sum / self.depths.len() as f64).exp())
    }

    /// Milliseconds of the prompts of these lengths, one after the other, each into an empty cache.
    fn prompts(&mut self, lengths: impl Iterator<Item = usize>) -> Result<f64> {
        let mut sum = 0.0;
        for length in lengths {
            sum += 1e3 * length as f64 / prompt_rate(self.engine, &self.prompt[..length])?;
        }
        self.engine.reset();
        Ok(sum)
    }

    /// What the engine computes at each depth, behind the long prompt, and behind short ones.
    fn results(&mut self) -> Result<Results> {
        let mut results = Vec::new();
        for index in 0..self.depths.len() {
            results.push(self.at_depth(index, |trials, depth| {
                let tokens = &trials.prompt[depth..depth + COMPARED];
                let one = |&token| Distribution::new(trials.engine.decode(token)?);
                tokens.iter().map(one).collect()
            })?);
        }
        let mut long = Vec::new();
        let (length, from) = (self.sizes.prompt, self.sizes.prompt.saturating_sub(COMPARED));
        self.engine
            .logits_of_all(&self.prompt[..length], from, &mut |_, logits| {
                long.push(Distribution::new(logits)?);
                Ok(())
            })?;
        results.push(long);
        let short = COMPARED_PROMPTS.iter().map(|&length| {
            self.engine.reset();
            Distribution::new(self.engine.prefill(&self.prompt[..length])?)
        });
        results.push(short.collect::<Result<_>>()?);
        self.engine.reset();
        Ok(results)
    }

    /// The rates at each depth in tokens a second, `rounds` times in turns: with the one tuning, with the other.
    ///
    /// # Errors
    /// The device's.
    pub fn compare(&mut self, tunings: [Tuning; 2], rounds: usize) -> Result<Vec<[Option<Spread>; 2]>> {
        let mut rates = vec![[Vec::new(), Vec::new()]; self.depths.len()];
        for round in 0..2 * rounds {
            // This way, that way, that way, this way: a drift of the clock favours none.
            let which = (round % 4).div_ceil(2) % 2;
            self.engine.retune(tunings[which])?;
            for (index, rates) in rates.iter_mut().enumerate() {
                rates[which].push(1e3 / self.decode(index)?);
            }
        }
        Ok(rates.into_iter().map(|pair| pair.map(Spread::of)).collect())
    }
}

impl<B: Backend> Trials for EngineTrials<'_, B> {
    fn time(&mut self, workload: Workload, tuning: Tuning) -> Result<Option<f64>> {
        let prompts = matches!(workload, Workload::Prompt | Workload::ShortPrompts);
        if prompts && self.engine.prompt().is_none() {
            return Ok(None);
        }
        // A device that cannot run the launches says so here, and goes on with the ones before.
        if self.engine.retune(tuning).is_err() {
            return Ok(Some(f64::INFINITY));
        }
        let time = match workload {
            Workload::Depths => self.all_depths(),
            Workload::Decode => self.decode(0),
            Workload::Prompt => self.prompts(std::iter::once(self.sizes.prompt)),
            Workload::ShortPrompts => self.prompts(SHORT_PROMPTS),
        };
        time.map(Some)
    }

    fn differ(&mut self, one: Tuning, other: Tuning) -> Result<bool> {
        let besides = |t: Tuning| (t.graph_steps, t.prompt_chunk, t.shortest_chunk);
        Ok(besides(one) != besides(other) || self.engine.steps_differ(one, other))
    }

    fn is_right(&mut self, tuning: Tuning) -> Result<bool> {
        self.engine.retune(tuning)?;
        let results = self.results()?;
        let mut groups = self.expected.iter().zip(&results);
        Ok(groups.all(|(expected, got)| close(expected, got)))
    }

    fn has_time(&self) -> bool {
        Instant::now() < self.deadline
    }
}

/// Whether the distributions of a group differ by rounding only.
fn close(expected: &[Distribution], got: &[Distribution]) -> bool {
    let divergence = |(want, got): (&Distribution, &Distribution)| {
        let point = want.compare(got, 0);
        point.map_or(f64::INFINITY, |point| point.kl)
    };
    let mut all: Vec<f64> = expected.iter().zip(got).map(divergence).collect();
    all.sort_by(f64::total_cmp);
    expected.len() == got.len() && all.get(all.len() / 2).is_some_and(|&middle| middle <= MOST_DIVERGENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distributions(logits: &[[f32; 3]]) -> Vec<Distribution> {
        logits.iter().map(|logits| Distribution::new(logits).unwrap()).collect()
    }

    #[test]
    fn one_position_may_be_far_and_most_may_not() {
        let want = distributions(&[[0.0, 1.0, 2.0]; 3]);
        assert!(close(&want, &want));
        let one = distributions(&[[0.0, 1.0, 2.0], [2.0, 1.0, 0.0], [0.0, 1.0, 2.0]]);
        assert!(close(&want, &one));
        let two = distributions(&[[0.0, 1.0, 2.0], [2.0, 1.0, 0.0], [0.0, 1.5, 2.0]]);
        assert!(!close(&want, &two));
        assert!(!close(&want, &want[..2]) && !close(&[], &[]));
    }

    #[test]
    fn depths_fit_the_model() {
        let sizes = TrialSizes::fitting(&[4096, 0, 16384, 0], 32, 2048, 4200);
        assert_eq!((sizes.depths.as_slice(), sizes.prompt), (&[0, 4096][..], 2048));
        assert!(sizes.context() > 4096 + 2048);
        assert_eq!(TrialSizes::fitting(&[0], 32, 2048, 100).prompt, 100);
    }
}
