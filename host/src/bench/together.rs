//! Several sequences that decode together.

use std::time::Instant;

use serde::Serialize;

use super::measure::{PROFILE_REPETITIONS, Run};
use super::{ProfileAt, Result, Spread, kv_bytes};
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
    /// The rate of each number of sequences, and the stages' times if asked for.
    pub(super) fn together(&mut self) -> Result<(Vec<TogetherRow>, Vec<ProfileAt>)> {
        let (options, prompt) = (self.options, self.prompt);
        let (mut rows, mut profiles) = (Vec::new(), Vec::new());
        for &sequences in &options.sequences {
            (self.note)(&format!("{sequences} sequences together"));
            let tokens = options.tokens;
            let (ours, peer) = self.interleaved(
                |engine| rate(engine, prompt, sequences, tokens),
                |peer| peer.together(sequences, PROMPT, tokens),
            )?;
            rows.push(TogetherRow { sequences, ours, peer });
            if options.profile {
                profiles.extend(self.profile_together(sequences)?);
            }
        }
        Ok((rows, profiles))
    }

    /// The times of a step behind the prompts.
    fn profile_together(&mut self, count: usize) -> Result<Option<ProfileAt>> {
        let (sequences, next) = begin(self.engine, self.prompt, count)?;
        let profile = self.engine.profile_of_many(&sequences, &next, PROFILE_REPETITIONS)?;
        let kv_bytes = count as u64 * kv_bytes(&self.model.spec, self.engine.description().kv, PROMPT + 1);
        Ok(profile.map(|profile| ProfileAt {
            sequences: count,
            depth: PROMPT,
            kv_bytes,
            profile,
        }))
    }
}

/// `count` sequences behind prompts of their own, and their next tokens.
fn begin(engine: &mut dyn Engine, prompt: &[u32], count: usize) -> Result<(Vec<Sequence>, Vec<u32>)> {
    let (mut sequences, mut next) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for i in 0..count {
        let own: Vec<u32> = prompt.iter().cycle().skip(i * PROMPT).take(PROMPT).copied().collect();
        engine.reset();
        engine.prefill(&own)?;
        sequences.push(engine.fork(PROMPT)?);
        next.push(own[0]);
    }
    engine.reset();
    Ok((sequences, next))
}

/// Tokens a second of greedy steps of `count` sequences behind prompts of their own, every token on the host.
fn rate(engine: &mut dyn Engine, prompt: &[u32], count: usize, tokens: usize) -> Result<f64> {
    let (mut sequences, mut next) = begin(engine, prompt, count)?;
    let start = Instant::now();
    for _ in 0..tokens {
        engine.next_of_many(&mut sequences, &mut next)?;
    }
    Ok((count * tokens) as f64 / start.elapsed().as_secs_f64())
}
