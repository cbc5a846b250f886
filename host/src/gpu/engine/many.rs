//! Steps of several sequences at once.

use sparkinfer_device::decode::StepState;
use sparkinfer_device::decode::state::NO_TOKEN;

use super::GpuEngine;
use crate::engine::{self, Engine, EngineError, Sequence, check_tokens, many, no_number};
use crate::gpu::backend::{Backend, DeviceError};

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
        for (sequences, tokens) in sequences.chunks(most).zip(tokens.chunks_mut(most)) {
            self.step_of_many(sequences, tokens)?;
            if let Some(batch) = &self.batch {
                self.backend
                    .download(batch.next().as_raw(), bytemuck::cast_slice_mut(tokens))?;
            }
            if tokens.contains(&NO_TOKEN) {
                return Err(no_number());
            }
        }
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
            self.step_of_many(sequences, tokens)?;
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

    /// Appends checked tokens, no more than a step takes; their logits are on the device.
    fn step_of_many(&mut self, sequences: &[Sequence], tokens: &[u32]) -> engine::Result<()> {
        let states = self.reserve_many(sequences, tokens)?;
        let (Some(batch), Some(prompt)) = (&mut self.batch, &self.prompt) else {
            return Err(EngineError::Invalid("this engine takes one sequence at a time".into()));
        };
        for (row, sequence) in sequences.iter().enumerate() {
            let state = self.waiting.get(sequence).ok_or_else(foreign)?;
            batch.set_pages(&self.backend, row, state.pages())?;
        }
        batch.step(&self.backend, prompt, &states)?;
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

fn foreign() -> EngineError {
    EngineError::Invalid("the sequence is another engine's".into())
}
