//! Who predicts: an engine along the way that is to be measured, or another program's file.

use std::ops::ControlFlow;

use super::Result;
use super::base_file::BaseFile;
use super::distribution::Distribution;
use super::windows::Window;
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

/// Someone's predictions for the windows of a text.
pub trait Source {
    /// What reports call it.
    fn name(&self) -> &str;

    /// The predictions for the second half of a window, which is number `index`.
    ///
    /// # Errors
    /// Whatever keeps it from predicting; predictions that are no numbers.
    fn predictions(&mut self, index: usize, window: &Window) -> Result<Vec<Distribution>>;
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

    /// What the engine writes behind a prompt when it always takes the token it expects most.
    ///
    /// # Errors
    /// The engine's.
    pub fn writes(&mut self, prompt: &[u32], count: usize) -> engine::Result<Vec<u32>> {
        let (mut written, mut sampler) = (Vec::new(), Sampler::new(SampleOptions::default()));
        self.engine.reset();
        self.engine.generate(prompt, &mut sampler, count, &mut |token| {
            written.push(token);
            ControlFlow::Continue(())
        })?;
        Ok(written)
    }
}

impl Source for Predictor<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn predictions(&mut self, _index: usize, window: &Window) -> Result<Vec<Distribution>> {
        self.engine.reset();
        Ok(self.continue_with(&window.input(), window.first_scored())?)
    }
}

/// llama.cpp's predictions.
pub struct Recorded {
    /// What reports call it.
    pub name: String,
    /// The file that it wrote.
    pub file: BaseFile,
}

impl Source for Recorded {
    fn name(&self) -> &str {
        &self.name
    }

    fn predictions(&mut self, index: usize, _window: &Window) -> Result<Vec<Distribution>> {
        self.file.distributions(index)
    }
}
