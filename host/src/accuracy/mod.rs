//! The accuracy gate: how far is what we compute from the truth?
//!
//! Every party predicts the same text, teacher-forced, over the whole vocabulary: the engine that is measured in exactly
//! the configuration in which it is used, references in f32, and llama.cpp through a file of its predictions. They are
//! compared in pairs ([`Comparison`]); besides, the engine's two ways of taking tokens are compared with each other, its
//! error at depth is measured, and what it writes by itself is set beside what the reference writes. A [`Gate`] judges
//! the report by limits from a file.
//!
//! Divergences are KL(base ‖ candidate) in nats, as llama.cpp's `--kl-divergence` has them.

mod base_file;
mod distribution;
mod gate;
mod measure;
mod peer;
mod plot;
mod recording;
mod source;
mod summary;
mod text;
mod windows;

#[cfg(all(test, feature = "bundled-model"))]
mod tests;

use serde::Serialize;

use crate::bench::{Machine, ModelFacts};
use crate::engine::EngineError;

pub use base_file::{BaseFile, rounded};
pub use distribution::{Distribution, Point};
pub use gate::{Gate, Rule, Verdict};
pub use measure::{Parties, measure, record};
pub use peer::{LlamaPerplexity, PeerRun};
pub use plot::svg;
pub use recording::{Recorder, Recording};
pub use source::{Predictor, Recorded, Reference, Way};
pub use summary::{Comparison, Divergence, Estimate};
pub use windows::Window;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, AccuracyError>;

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum AccuracyError {
    /// An engine's own, or predictions that cannot be compared.
    #[error("{party}: {error}")]
    Party {
        /// Whose predictions.
        party: String,
        /// What is wrong.
        error: EngineError,
    },
    /// What was asked for makes no sense.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A file of predictions, or of limits.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The peer could not be run.
    #[error("the peer {binary}: {problem}")]
    Peer {
        /// Its program.
        binary: String,
        /// What went wrong.
        problem: String,
    },
}

/// What to measure besides the windows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Options {
    /// Depths at which the engine's two ways of taking tokens are compared.
    pub way_depths: Vec<usize>,
    /// Depths at which the engine is compared with the first reference.
    pub depths: Vec<usize>,
    /// Tokens that are scored at each depth.
    pub tokens_at_depth: usize,
    /// Prompts behind which the engine and the first reference write by themselves.
    pub prompts: usize,
    /// Tokens that they write behind each.
    pub written: usize,
}

impl Options {
    /// Room for tokens that every engine needs, for windows of `window` tokens.
    pub fn context(&self, window: usize) -> usize {
        let deepest = self.way_depths.iter().chain(&self.depths).max();
        let deepest = deepest.map_or(0, |depth| depth.saturating_add(self.tokens_at_depth));
        let written = if self.prompts > 0 { window / 2 + self.written } else { 0 };
        window.max(deepest).max(written)
    }
}

/// A text to be predicted.
#[derive(Debug, Clone)]
pub struct Text {
    /// What reports call it.
    pub name: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// The token with which the model begins every text, if it does.
    pub bos: Option<u32>,
    /// Its windows.
    pub windows: Vec<Window>,
}

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The model.
    pub model: ModelFacts,
    /// The machine and the program.
    pub machine: Machine,
    /// The text.
    pub text: String,
    /// Tokens of a window.
    pub window: usize,
    /// Type of the cache of what is measured; none if none was asked for: the engine's own.
    pub kv_type: Option<String>,
    /// What else was asked for.
    pub options: Options,
    /// What llama.cpp was, if it took part.
    pub peer: Option<PeerRun>,
    /// Everything that was found.
    pub found: Found,
    /// The gate's verdict, if there is a gate.
    pub verdict: Option<Verdict>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// Who took part: names, and how they describe themselves.
    pub parties: Vec<(String, String)>,
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// The engine that is measured, from each reference.
    pub ours: Vec<Comparison>,
    /// The other references from the first.
    pub references: Vec<Comparison>,
    /// llama.cpp from the first reference.
    pub peer: Option<Comparison>,
    /// By how much our divergence from the first reference exceeds llama.cpp's, position by position.
    pub over_peer: Option<Estimate>,
    /// The engine that is measured, from llama.cpp.
    pub from_peer: Option<Comparison>,
    /// The first reference as llama.cpp's file would have it, from the first reference: below this divergence, what is
    /// said of llama.cpp is the file's error and not its own.
    pub peer_floor: Option<Comparison>,
    /// The engine that takes tokens one by one, from the same engine that takes them at once.
    pub ways: Vec<AtDepth>,
    /// The engine behind a filled cache, from the first reference.
    pub depths: Vec<AtDepth>,
    /// What the engine writes by itself.
    pub writing: Option<Writing>,
}

/// A comparison behind a filled cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AtDepth {
    /// Tokens in the cache before the first that is scored.
    pub depth: usize,
    /// What was found.
    pub comparison: Comparison,
}

/// Texts that the engine and the first reference wrote, each always taking the token it expects most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Writing {
    /// Prompts.
    pub prompts: usize,
    /// Tokens that both wrote, in all.
    pub tokens: usize,
    /// Those before the first difference behind each prompt. One near-tie ends the agreement.
    pub before_difference: usize,
    /// Prompts behind which both wrote the same.
    pub identical: usize,
}
