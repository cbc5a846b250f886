//! Steps of several sequences at once.

use sparkinfer_device::decode::StepState;
use sparkinfer_device::decode::state::NO_TOKEN;

use super::GpuEngine;
use crate::engine::{self, Engine, EngineError, Mark, Sequence, check_tokens, many, no_number};
use crate::gpu::backend::{Backend, DeviceError};
use crate::gpu::observe;
use crate::profile::Profile;

/// A step under way that nobody has asked for yet.
pub(super) struct Ahead {
    step: u32,
    marks: Vec<Mark>,
    /// What it begins with, once that is known.
    tokens: Vec<u32>,
}

impl<B: Backend> GpuEngine<B> {
    /// Sequences that one step takes at most.
    pub fn sequences(&self) -> usize {
        self.batch.as_ref().map_or(1, |batch| batch.sequences())
    }

    pub(super) fn next_tokens(&mut self, sequences: &mut [Sequence], tokens: &mut [u32]) -> engine::Result<()> {
        if self.batch.is_none() {
            return many::next_one_by_one(self, sequences, tokens);
        }
        self.check_many(sequences, tokens)?;
        let most = self.sequences();
        let all = sequences.len() <= most;
        for (sequences, tokens) in sequences.chunks(most).zip(tokens.chunks_mut(most)) {
            let step = match self.under_way(sequences, tokens) {
                Some(step) => step,
                None => self.step_of_many(sequences, tokens)?,
            };
            self.advance_many(sequences)?;
            if all {
                self.go_ahead(sequences)?;
            }
            let batch = self.batch.as_mut().ok_or_else(one_at_a_time)?;
            batch.chosen(&self.backend, step, tokens)?;
            if let Some(ahead) = &mut self.ahead {
                ahead.tokens.copy_from_slice(tokens);
            }
            if tokens.contains(&NO_TOKEN) {
                return Err(no_number());
            }
        }
        Ok(())
    }

    /// The step under way, if it is the one that appends `tokens` to `sequences`: asked for once.
    fn under_way(&mut self, sequences: &[Sequence], tokens: &[u32]) -> Option<u32> {
        let ahead = self.ahead.take()?;
        let same = ahead.marks.len() == sequences.len()
            && ahead.tokens == tokens
            && ahead
                .marks
                .iter()
                .zip(sequences)
                .all(|(mark, sequence)| mark.is_of(sequence));
        same.then_some(ahead.step)
    }

    /// Enqueues the step behind the one that was enqueued last, of the same sequences, before its tokens are on the host: they
    /// are asked for next, more often than not. If not, what it appended lies behind the sequences' ends.
    fn go_ahead(&mut self, sequences: &[Sequence]) -> engine::Result<()> {
        for sequence in sequences {
            let state = self.waiting.get_mut(sequence).ok_or_else(foreign)?;
            let tokens = state.len() + 1;
            if tokens > self.context {
                return Ok(());
            }
            match state.reserve(&mut self.pool, tokens) {
                Ok(Some(copy)) => self.copy_page(copy)?,
                Ok(None) => {}
                Err(_) => return Ok(()),
            }
        }
        self.tell_pages(sequences)?;
        let batch = self.batch.as_mut().ok_or_else(one_at_a_time)?;
        self.ahead = Some(Ahead {
            step: batch.follow(&self.backend, sequences.len())?,
            marks: sequences.iter().map(Mark::new).collect(),
            tokens: vec![NO_TOKEN; sequences.len()],
        });
        Ok(())
    }

    pub(super) fn logits_of_rows(
        &mut self,
        sequences: &mut [Sequence],
        tokens: &[u32],
        each: super::Each<'_>,
    ) -> engine::Result<()> {
        if self.batch.is_none() {
            return many::logits_one_by_one(self, sequences, tokens, each);
        }
        self.check_many(sequences, tokens)?;
        let most = self.sequences();
        for (i, (sequences, tokens)) in sequences.chunks(most).zip(tokens.chunks(most)).enumerate() {
            self.ahead = None;
            self.step_of_many(sequences, tokens)?;
            self.advance_many(sequences)?;
            for row in 0..tokens.len() {
                if let Some(batch) = &self.batch {
                    let logits = bytemuck::cast_slice_mut(&mut self.logits);
                    self.backend.download(batch.logits(row).as_raw(), logits)?;
                }
                each(i * most + row, &self.logits)?;
            }
        }
        Ok(())
    }

    /// Checks, before anything changes, that each of `tokens` can be appended to its sequence.
    fn check_many(&self, sequences: &[Sequence], tokens: &[u32]) -> engine::Result<()> {
        many::check_pairs(sequences, tokens)?;
        for (sequence, &token) in sequences.iter().zip(tokens) {
            let state = self.waiting.get(sequence).ok_or_else(foreign)?;
            check_tokens(&[token], state.len(), self.context, self.vocab_size())?;
        }
        Ok(())
    }

    /// The times of the step that would append `tokens`, none where there is no such step. What makes the next tokens is
    /// left out: it would move the sequences on.
    pub(super) fn times_of_many(
        &mut self,
        sequences: &[Sequence],
        tokens: &[u32],
        repetitions: usize,
    ) -> engine::Result<Option<Profile>> {
        if self.batch.is_none() {
            return Ok(None);
        }
        self.check_many(sequences, tokens)?;
        self.ahead = None;
        if tokens.len() > self.sequences() {
            let problem = format!("{} sequences; a step takes up to {}", tokens.len(), self.sequences());
            return Err(EngineError::Invalid(problem));
        }
        let states = self.prepare_many(sequences, tokens)?;
        let batch = self.batch.as_mut().ok_or_else(one_at_a_time)?;
        batch.set_states(&self.backend, &states)?;
        let plan = batch.plan(states.len() as u32)?;
        let stages: Vec<_> = plan.stages.iter().filter(|stage| stage.name != "advance").collect();
        Ok(Some(observe::timed(&self.backend, &stages, repetitions)?))
    }

    /// Makes room for `tokens`, and tells the device where; their states.
    fn prepare_many(&mut self, sequences: &[Sequence], tokens: &[u32]) -> engine::Result<Vec<StepState>> {
        let states = self.reserve_many(sequences, tokens)?;
        self.tell_pages(sequences)?;
        Ok(states)
    }

    /// Tells the device the pages of each row's sequence.
    fn tell_pages(&mut self, sequences: &[Sequence]) -> engine::Result<()> {
        let batch = self.batch.as_mut().ok_or_else(one_at_a_time)?;
        for (row, sequence) in sequences.iter().enumerate() {
            let state = self.waiting.get(sequence).ok_or_else(foreign)?;
            batch.set_pages(&self.backend, row, state.pages())?;
        }
        Ok(())
    }

    /// Enqueues the step that appends checked tokens, no more than one takes; its number.
    fn step_of_many(&mut self, sequences: &[Sequence], tokens: &[u32]) -> engine::Result<u32> {
        let states = self.prepare_many(sequences, tokens)?;
        let batch = self.batch.as_mut().ok_or_else(one_at_a_time)?;
        Ok(batch.step(&self.backend, &states)?)
    }

    /// Counts a token more in each sequence.
    fn advance_many(&mut self, sequences: &[Sequence]) -> engine::Result<()> {
        for sequence in sequences {
            self.waiting.get_mut(sequence).ok_or_else(foreign)?.advance(1);
        }
        Ok(())
    }

    /// Makes room for a token more in each sequence; what the device is to know of them.
    fn reserve_many(&mut self, sequences: &[Sequence], tokens: &[u32]) -> engine::Result<Vec<StepState>> {
        self.free_abandoned();
        let mut states = Vec::with_capacity(tokens.len());
        for (sequence, &token) in sequences.iter().zip(tokens) {
            let state = self.waiting.get_mut(sequence).ok_or_else(foreign)?;
            let position = state.len();
            let copy = state.reserve(&mut self.pool, position + 1).map_err(DeviceError::new)?;
            if let Some(copy) = copy {
                self.copy_page(copy)?;
            }
            states.push(StepState {
                token,
                position: position as u32,
                step: 0,
                draws: 0,
            });
        }
        Ok(states)
    }
}

fn one_at_a_time() -> EngineError {
    EngineError::Invalid("this engine takes one sequence at a time".into())
}

fn foreign() -> EngineError {
    EngineError::Invalid("the sequence is another engine's".into())
}
