//! The measurements themselves.

use std::ops::ControlFlow;
use std::time::Instant;

use super::{
    BenchError, BenchOptions, DecodeRow, Limit, Peer, ProfileAt, PromptRow, PromptTokens, Result, Spread, kv_bytes,
};
use crate::engine::{self, Engine};
use crate::load::Model;
use crate::sample::{SampleOptions, Sampler};

/// Replays of a stage behind one of its times.
pub(super) const PROFILE_REPETITIONS: usize = 50;

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) engine: &'a mut dyn Engine,
    pub(super) model: &'a Model,
    /// The ids of the first prompt.
    pub(super) prompt: &'a [u32],
    pub(super) options: &'a BenchOptions,
    pub(super) peer: Option<&'a mut dyn Peer>,
    pub(super) note: &'a mut dyn FnMut(&str),
}

impl Run<'_> {
    /// The rate of each prompt.
    pub(super) fn prompts(&mut self) -> Result<Vec<PromptRow>> {
        let options = self.options;
        let rows = options.prompt_sizes.iter().map(|&tokens| {
            (self.note)(&format!("prompt of {tokens} tokens"));
            let prompt = &self.prompt[..tokens.min(self.prompt.len())];
            let (ours, peer) = self.interleaved(
                |engine| Ok(prompt_rate(engine, prompt)?),
                |peer| peer.prompt(prompt.len()),
            )?;
            Ok(PromptRow { tokens, ours, peer })
        });
        rows.collect()
    }

    /// The decode rate at each depth behind one prompt after the other, and the stages' times behind the first one if asked
    /// for. The cache is filled once a prompt, depth by depth.
    pub(super) fn decode(
        &mut self,
        prompts: &[PromptTokens],
        bandwidth: Option<f64>,
    ) -> Result<(Vec<DecodeRow>, Vec<ProfileAt>)> {
        let mut depths = self.options.depths.clone();
        depths.sort_unstable();
        depths.dedup();
        let (mut rows, mut profiles) = (Vec::new(), Vec::new());
        for (number, prompt) in prompts.iter().enumerate() {
            self.engine.reset();
            for &depth in &depths {
                (self.note)(&format!(
                    "decode at depth {depth} behind {}",
                    prompt.facts().description
                ));
                fill(self.engine, prompt.ids(), depth)?;
                rows.push(self.decode_row(prompt, depth, bandwidth)?);
                if self.options.profile && number == 0 {
                    profiles.extend(self.profile(depth)?);
                }
            }
        }
        Ok((rows, profiles))
    }

    fn decode_row(&mut self, prompt: &PromptTokens, depth: usize, bandwidth: Option<f64>) -> Result<DecodeRow> {
        let (tokens, ids) = (self.options.tokens, prompt.ids());
        let first = ids[depth.min(ids.len() - 1)];
        let text = self
            .peer
            .as_ref()
            .and_then(|_| prompt.beginning(&self.model.tokenizer, depth));
        let (ours, peer) = self.interleaved(
            |engine| Ok(decode_rate(engine, first, tokens)?),
            |peer| match &text {
                Some(text) => peer.decode_behind(text, depth, tokens),
                None => peer.decode(depth, tokens),
            },
        )?;
        let middle = depth + 1 + tokens / 2;
        let kv = self.engine.description().kv;
        let limit = bandwidth.map(|bandwidth| Limit::new(&self.model.spec, kv, middle, bandwidth));
        Ok(DecodeRow {
            prompt: prompt.facts().kind,
            depth,
            ours,
            peer,
            limit,
        })
    }

    fn profile(&mut self, depth: usize) -> Result<Option<ProfileAt>> {
        let token = self.prompt[depth.min(self.prompt.len() - 1)];
        let profile = self.engine.profile(token, PROFILE_REPETITIONS)?;
        let kv_bytes = kv_bytes(&self.model.spec, self.engine.description().kv, depth + 1);
        Ok(profile.map(|profile| ProfileAt {
            sequences: 1,
            depth,
            kv_bytes,
            profile,
        }))
    }

    /// Our rate and the peer's, in turns; our first one does not count, and the peer warms itself up.
    pub(super) fn interleaved(
        &mut self,
        mut ours: impl FnMut(&mut dyn Engine) -> Result<f64>,
        mut theirs: impl FnMut(&mut dyn Peer) -> Result<f64>,
    ) -> Result<(Spread, Option<Spread>)> {
        ours(self.engine)?;
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for number in 0..self.options.repetitions {
            own.push(ours(self.engine)?);
            if let Some(peer) = self.peer.as_mut().filter(|_| number < self.options.peer_repetitions) {
                other.push(theirs(*peer)?);
            }
        }
        let own = Spread::of(own).ok_or(BenchError::Nothing("the number of repetitions"))?;
        Ok((own, Spread::of(other)))
    }
}

/// Brings the cache to exactly `depth` tokens of the prompt.
pub(super) fn fill(engine: &mut dyn Engine, prompt: &[u32], depth: usize) -> Result<()> {
    engine.truncate(depth);
    let position = engine.position();
    if position < depth {
        engine.prefill(&prompt[position..depth])?;
    }
    Ok(())
}

/// Tokens a second of a prompt into an empty cache, its last logits on the host.
pub(crate) fn prompt_rate(engine: &mut dyn Engine, prompt: &[u32]) -> engine::Result<f64> {
    engine.reset();
    let start = Instant::now();
    engine.prefill(prompt)?;
    Ok(prompt.len() as f64 / start.elapsed().as_secs_f64())
}

/// Tokens a second of greedy decoding behind what is cached, each token on the host, from the first token (which is
/// `first`'s prompt, and not counted) to the last. The cache is left as it was.
pub(crate) fn decode_rate(engine: &mut dyn Engine, first: u32, tokens: usize) -> engine::Result<f64> {
    let depth = engine.position();
    let mut sampler = Sampler::new(SampleOptions::default());
    let mut times = Vec::with_capacity(tokens + 1);
    let count = engine.generate(&[first], &mut sampler, tokens + 1, &mut |_| {
        times.push(Instant::now());
        ControlFlow::Continue(())
    })?;
    engine.truncate(depth);
    let seconds = (times[count - 1] - times[0]).as_secs_f64();
    Ok((count - 1) as f64 / seconds)
}
