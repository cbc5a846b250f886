//! Whether decoding repeats itself: tokens generated again and again from the same state, and compared number by number.

use std::collections::HashSet;
use std::fmt;
use std::ops::ControlFlow;

use serde::Serialize;

use super::machine::sha256_of;
use super::measure::fill;
use super::{BenchError, Machine, ModelFacts, PromptFacts, PromptTokens, Result};
use crate::engine::Engine;
use crate::load::Model;
use crate::sample::{SampleOptions, Sampler};
use crate::tokenizer::listing;
use crate::tuning::Tuning;

/// What to repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatOptions {
    /// Tokens in the cache before the first one, for each comparison.
    pub depths: Vec<usize>,
    /// Tokens of a run.
    pub tokens: usize,
    /// Runs at each depth.
    pub runs: usize,
    /// Whether each run fills the cache anew; else all of a depth begin behind the same cached tokens.
    pub refill: bool,
}

impl RepeatOptions {
    /// Room for tokens that the engine needs, and that the prompt must have.
    pub fn context(&self) -> usize {
        let deepest = self.depths.iter().max().copied().unwrap_or(0);
        deepest.saturating_add(self.tokens).saturating_add(1)
    }
}

/// What was repeated, and whether it was the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepeatReport {
    /// The model.
    pub model: ModelFacts,
    /// The device and the arithmetic.
    pub device: String,
    /// How launches were cut; none without launches.
    pub tuning: Option<Tuning>,
    /// The machine and the program.
    pub machine: Machine,
    /// What the cache was filled with.
    pub prompt: PromptFacts,
    /// Tokens of a run.
    pub tokens: usize,
    /// Runs at each depth.
    pub runs: usize,
    /// Whether each run filled the cache anew.
    pub refilled: bool,
    /// Whether all runs of each depth were the same.
    pub identical: bool,
    /// The depths.
    pub depths: Vec<RepeatRow>,
}

/// The runs of a depth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepeatRow {
    /// Tokens in the cache before the first one.
    pub depth: usize,
    /// Whether the runs gave the same tokens.
    pub identical: bool,
    /// How many different tokens the first run has: of a text that is one token over and over, little is learnt.
    pub distinct: usize,
    /// The SHA-256 of the first run's line of `generate --show-tokens`, in hexadecimal: runs of other programs and days
    /// can be compared with it.
    pub sha256: String,
    /// The first run's tokens.
    pub output_ids: Vec<u32>,
    /// The runs that are not like the first one.
    pub differences: Vec<Difference>,
}

/// Where a run leaves the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The run, counted from 1.
    pub run: usize,
    /// Tokens that are the same before.
    pub after: usize,
    /// The first run's next token; none where it has ended.
    pub first: Option<u32>,
    /// This run's next token; none where it has ended.
    pub here: Option<u32>,
}

/// Generates greedily at each depth, several times, and compares. `engine` has room for [`RepeatOptions::context`] tokens,
/// `prompt` has as many; `note` is told what is being done.
///
/// # Errors
/// The engine's; options that leave nothing to compare.
pub fn repeat(
    engine: &mut dyn Engine,
    model: &Model,
    prompt: &PromptTokens,
    options: &RepeatOptions,
    note: &mut dyn FnMut(&str),
) -> Result<RepeatReport> {
    for (count, what) in [
        (options.tokens, "the number of tokens"),
        (options.runs, "the number of runs"),
    ] {
        if count == 0 {
            return Err(BenchError::Nothing(what));
        }
    }
    let mut sorted = options.depths.clone();
    sorted.sort_unstable();
    sorted.dedup();
    engine.reset();
    let mut depths = Vec::with_capacity(sorted.len());
    for depth in sorted {
        note(&format!("{} runs at depth {depth}", options.runs));
        let runs = (0..options.runs).map(|_| tokens_at(engine, prompt.ids(), depth, options));
        depths.push(RepeatRow::of(depth, &runs.collect::<Result<Vec<_>>>()?));
    }
    Ok(RepeatReport {
        model: ModelFacts::of(model),
        device: engine.description().device.clone(),
        tuning: engine.tuning(),
        machine: Machine::look(),
        prompt: prompt.facts().clone(),
        tokens: options.tokens,
        runs: options.runs,
        refilled: options.refill,
        identical: depths.iter().all(|row| row.identical),
        depths,
    })
}

/// The tokens of a run behind the prompt's first `depth`, which stay in the cache; its own are forgotten.
fn tokens_at(engine: &mut dyn Engine, prompt: &[u32], depth: usize, options: &RepeatOptions) -> Result<Vec<u32>> {
    if options.refill {
        engine.reset();
    }
    fill(engine, prompt, depth)?;
    let mut sampler = Sampler::new(SampleOptions::default());
    let mut ids = Vec::with_capacity(options.tokens);
    engine.generate(&prompt[depth..=depth], &mut sampler, options.tokens, &mut |token| {
        ids.push(token);
        ControlFlow::Continue(())
    })?;
    engine.truncate(depth);
    Ok(ids)
}

impl RepeatRow {
    /// Compares all runs with the first one, which must be there.
    fn of(depth: usize, runs: &[Vec<u32>]) -> Self {
        let output_ids = runs[0].clone();
        let others = (2..).zip(&runs[1..]);
        let differences: Vec<Difference> = others
            .filter_map(|(run, ids)| Difference::between(&output_ids, ids, run))
            .collect();
        let line = listing::ids_line(&output_ids) + "\n";
        Self {
            depth,
            identical: differences.is_empty(),
            distinct: output_ids.iter().collect::<HashSet<_>>().len(),
            sha256: sha256_of(line.as_bytes()),
            output_ids,
            differences,
        }
    }
}

impl Difference {
    /// None where `ids` are those of the first run.
    fn between(first: &[u32], ids: &[u32], run: usize) -> Option<Self> {
        let after = first.iter().zip(ids).take_while(|(a, b)| a == b).count();
        let (first, here) = (first.get(after).copied(), ids.get(after).copied());
        (first != here).then_some(Self {
            run,
            after,
            first,
            here,
        })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |token: Option<u32>| token.map_or("none".to_owned(), |token| token.to_string());
        let (first, here) = (name(self.first), name(self.here));
        write!(
            f,
            "run {} differs after {} tokens, {here} instead of {first}",
            self.run, self.after
        )
    }
}

impl fmt::Display for RepeatReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} | {}", self.model.title, self.device)?;
        let (runs, tokens, filled) = (self.runs, self.tokens, &self.prompt.description);
        let anew = if self.refilled {
            ", filled anew for each run"
        } else {
            ""
        };
        writeln!(f, "{runs} greedy runs of {tokens} tokens behind {filled}{anew}:")?;
        self.depths.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}

impl fmt::Display for RepeatRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "depth {}: ", self.depth)?;
        if self.identical {
            return write!(
                f,
                "identical, {} different tokens, SHA-256 {}",
                self.distinct, self.sha256
            );
        }
        let differences: Vec<String> = self.differences.iter().map(Difference::to_string).collect();
        f.write_str(&differences.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_leaves_the_first_one_is_found() {
        let same = RepeatRow::of(3, &[vec![7, 8, 7], vec![7, 8, 7]]);
        assert!(same.identical && same.distinct == 2 && same.differences.is_empty());
        let text = same.to_string();
        // `printf '7 8 7\n' | sha256sum`
        assert_eq!(
            text,
            "depth 3: identical, 2 different tokens, SHA-256 70cbdde88f1a675992b4650318a8fbcdbbbf7eb4ceb9118b772ad0f4b44fd13b"
        );
        let other = RepeatRow::of(3, &[vec![7, 8, 7], vec![7, 8, 7], vec![7, 9, 7], vec![7, 8]]);
        assert_eq!(
            other.to_string(),
            "depth 3: run 3 differs after 1 tokens, 9 instead of 8; run 4 differs after 2 tokens, none instead of 7"
        );
        assert!(!other.identical);
    }

    #[test]
    fn a_single_run_is_like_itself() {
        assert!(RepeatRow::of(0, &[vec![1]]).identical);
    }
}
