//! Who predicts: an engine along the way that is to be measured, or another program's file.

use std::ops::ControlFlow;

use super::base_file::BaseFile;
use super::distribution::Distribution;
use super::{AccuracyError, Result};
use crate::engine::{self, Engine};
use crate::sample::{SampleOptions, Sampler};

/// How an engine takes the tokens whose successors are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// One by one, as it does when it writes; those before them as a prompt.
    #[default]
    Decode,
    /// All at once, as a prompt.
    Prompt,
}

/// An engine with a name, and the way in which it takes tokens.
pub struct Predictor<'e> {
    /// What reports call it.
    pub name: String,
    /// The engine.
    pub engine: Box<dyn Engine + 'e>,
    /// The way.
    pub way: Way,
}

/// What others are measured by.
pub trait Reference {
    /// What reports call it.
    fn name(&self) -> &str;

    /// How it describes itself.
    fn description(&self) -> String;

    /// The predictions behind each of `tokens` from number `from` on.
    ///
    /// # Errors
    /// Whatever keeps it from predicting; predictions that are no numbers.
    fn predictions(&mut self, tokens: &[u32], from: usize) -> Result<Vec<Distribution>>;

    /// What it writes behind a prompt when it always takes the token it expects most.
    ///
    /// # Errors
    /// Whatever keeps it from writing.
    fn writes(&mut self, prompt: &[u32], count: usize) -> Result<Vec<u32>>;
}

impl Predictor<'_> {
    /// The predictions behind each of `tokens` from number `from` on, after those already cached.
    ///
    /// # Errors
    /// The engine's; logits that are no numbers.
    pub fn continue_with(&mut self, tokens: &[u32], from: usize) -> engine::Result<Vec<Distribution>> {
        let mut found = Vec::new();
        match self.way {
            Way::Prompt => self.engine.logits_of_all(tokens, from, &mut |_, logits| {
                found.push(Distribution::new(logits)?);
                Ok(())
            })?,
            Way::Decode => {
                if from > 0 {
                    self.engine.prefill(&tokens[..from])?;
                }
                for &token in &tokens[from..] {
                    found.push(Distribution::new(self.engine.decode(token)?)?);
                }
            }
        }
        Ok(found)
    }

    /// Says whose error it is.
    pub(super) fn own<T>(&self, result: engine::Result<T>) -> Result<T> {
        result.map_err(|error| AccuracyError::Party {
            party: self.name.clone(),
            error,
        })
    }

    fn write(&mut self, prompt: &[u32], count: usize) -> engine::Result<Vec<u32>> {
        let (mut written, mut sampler) = (Vec::new(), Sampler::new(SampleOptions::default()));
        self.engine.reset();
        self.engine.generate(prompt, &mut sampler, count, &mut |token| {
            written.push(token);
            ControlFlow::Continue(())
        })?;
        Ok(written)
    }
}

impl Reference for Predictor<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        self.engine.description().device.clone()
    }

    fn predictions(&mut self, tokens: &[u32], from: usize) -> Result<Vec<Distribution>> {
        self.engine.reset();
        let found = self.continue_with(tokens, from);
        self.own(found)
    }

    fn writes(&mut self, prompt: &[u32], count: usize) -> Result<Vec<u32>> {
        let written = self.write(prompt, count);
        self.own(written)
    }
}

/// llama.cpp's predictions.
pub struct Recorded {
    /// What reports call it.
    pub name: String,
    /// The file that it wrote.
    pub file: BaseFile,
}
