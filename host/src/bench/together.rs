//! Several sequences that decode together.

use std::time::Instant;

use serde::Serialize;

use super::measure::Run;
use super::{Result, Spread};
use crate::engine::{Engine, Sequence};

/// Tokens of each sequence's prompt.
pub(super) const PROMPT: usize = 16;

/// Decoding of several sequences in steps of all of them, in tokens a second of all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TogetherRow {
    /// Sequences.
    pub sequences: usize,
    /// Our rate.
    pub ours: Spread,
    /// The peer's.
    pub peer: Option<Spread>,
}

impl Run<'_> {
    /// The rate of each number of sequences.
    pub(super) fn together(&mut self) -> Result<Vec<TogetherRow>> {
        let (options, prompt) = (self.options, self.prompt);
        let rows = options.sequences.iter().map(|&sequences| {
            (self.note)(&format!("{sequences} sequences together"));
            let tokens = options.tokens;
            let (ours, peer) = self.interleaved(
                |engine| rate(engine, prompt, sequences, tokens),
                |peer| peer.together(sequences, PROMPT, tokens),
            )?;
            Ok(TogetherRow { sequences, ours, peer })
        });
        rows.collect()
    }
}

/// Tokens a second of greedy steps of `count` sequences behind prompts of their own, every token on the host.
fn rate(engine: &mut dyn Engine, prompt: &[u32], count: usize, tokens: usize) -> Result<f64> {
    let mut next = Vec::with_capacity(count);
    let mut sequences: Vec<Sequence> = Vec::with_capacity(count);
    for i in 0..count {
        let own: Vec<u32> = prompt.iter().cycle().skip(i * PROMPT).take(PROMPT).copied().collect();
        engine.reset();
        engine.prefill(&own)?;
        sequences.push(engine.fork(PROMPT)?);
        next.push(own[0]);
    }
    engine.reset();
    let start = Instant::now();
    for _ in 0..tokens {
        engine.next_of_many(&mut sequences, &mut next)?;
    }
    Ok((count * tokens) as f64 / start.elapsed().as_secs_f64())
}
