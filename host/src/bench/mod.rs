//! How fast a model runs: prompt and decode rates, beside the memory's limit and beside another engine.
//!
//! Every rate is measured several times after a warm-up, with the cache really filled to its depth, a peer's runs
//! between our own. The report keeps all samples and what they were measured on. Beside it, [`repeat`] tells whether what
//! is decoded is the same each time.

mod completion;
mod limit;
mod machine;
mod measure;
mod peer;
mod plot;
mod prompt;
mod repeat;
mod spread;
mod text;
mod together;
mod within;

#[cfg(all(test, feature = "bundled-model"))]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{Engine, EngineError};
use crate::load::Model;
use crate::profile::Profile;
use crate::tuning::Tuning;

pub use limit::{Limit, kv_bytes};
pub use machine::{Commit, GpuState, Machine, sha256};
pub(crate) use measure::{decode_rate, prompt_rate};
pub use peer::{LlamaBench, Peer, PeerFacts, library_path};
pub use plot::svg;
pub use prompt::{PromptFacts, PromptKind, PromptTokens};
pub use repeat::{Difference, RepeatOptions, RepeatReport, RepeatRow, repeat};
pub use spread::Spread;
pub use together::TogetherRow;
pub use within::output_within;

/// The time that a run of a peer may take, if nothing else is said: enough to read a large model from a disk and measure it.
pub const PEER_LIMIT: Duration = Duration::from_secs(600);

/// The result of a measurement.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The engine's own.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The peer could not be measured.
    #[error("the peer {binary}: {problem}")]
    Peer {
        /// Its program.
        binary: String,
        /// What went wrong.
        problem: String,
    },
    /// The text of a prompt cannot be read as tokens.
    #[error("{0}")]
    Text(String),
    /// Nothing to measure.
    #[error("{0} must be at least 1")]
    Nothing(&'static str),
}

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchOptions {
    /// Depths at which to decode: tokens in the cache before the first one.
    pub depths: Vec<usize>,
    /// Tokens to decode.
    pub tokens: usize,
    /// Lengths of prompts to read.
    pub prompt_sizes: Vec<usize>,
    /// Numbers of sequences to decode together.
    pub sequences: Vec<usize>,
    /// Measurements of each, besides the warm-up.
    pub repetitions: usize,
    /// Measurements of each by the peer, no more than of ours.
    pub peer_repetitions: usize,
    /// Whether to time each stage of a step.
    pub profile: bool,
}

impl BenchOptions {
    /// Room for tokens that the engine needs.
    pub fn context(&self) -> usize {
        let deepest = self
            .depths
            .iter()
            .max()
            .map_or(0, |depth| depth.saturating_add(self.tokens + 2));
        let longest = self.prompt_sizes.iter().max().copied().unwrap_or(0);
        let together = self
            .sequences
            .iter()
            .max()
            .map_or(0, |_| together::PROMPT + self.tokens + 1);
        deepest.max(longest).max(together).max(1)
    }

    /// Room for sequences that the engine needs.
    pub fn most_sequences(&self) -> usize {
        self.sequences.iter().max().copied().unwrap_or(1).max(1)
    }
}

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The model.
    pub model: ModelFacts,
    /// The device and the arithmetic.
    pub device: String,
    /// How launches were cut; none without launches.
    pub tuning: Option<Tuning>,
    /// The machine and the program.
    pub machine: Machine,
    /// Bytes a second that the device reads, measured in the same run.
    pub read_bandwidth: Option<f64>,
    /// The peer.
    pub peer: Option<PeerFacts>,
    /// Tokens decoded in each measurement.
    pub tokens: usize,
    /// What the prompts are made of; everything but decode rates is measured with the first one.
    pub prompts: Vec<PromptFacts>,
    /// Decode rates, prompt by prompt.
    pub decode: Vec<DecodeRow>,
    /// Prompt rates.
    pub prompt: Vec<PromptRow>,
    /// Rates of several sequences together.
    pub together: Vec<TogetherRow>,
    /// Times of the stages of a step.
    pub profiles: Vec<ProfileAt>,
}

impl Report {
    /// The decode rates behind prompts of a kind, by depth.
    pub fn decode_behind(&self, kind: PromptKind) -> impl Iterator<Item = &DecodeRow> {
        self.decode.iter().filter(move |row| row.prompt == kind)
    }
}

/// A model file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Name and architecture.
    pub title: String,
    /// The file as messages call it.
    pub file: String,
    /// Its bytes.
    pub file_bytes: u64,
    /// The SHA-256 of each file, if asked for.
    pub sha256: Option<Vec<String>>,
}

impl ModelFacts {
    /// Without the SHA-256.
    pub(crate) fn of(model: &Model) -> Self {
        Self {
            title: model.spec.title(),
            file: model.gguf.label().to_owned(),
            file_bytes: model.gguf.file_bytes(),
            sha256: None,
        }
    }
}

/// Decoding at a depth, in tokens a second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecodeRow {
    /// What the cache was filled with.
    pub prompt: PromptKind,
    /// Tokens in the cache before the first one.
    pub depth: usize,
    /// Our rate.
    pub ours: Spread,
    /// The peer's.
    pub peer: Option<Spread>,
    /// The memory's limit, for a token in the middle of those decoded.
    pub limit: Option<Limit>,
}

impl DecodeRow {
    /// How many times as fast as the peer.
    pub fn ratio(&self) -> Option<f64> {
        self.peer.as_ref().map(|peer| self.ours.median / peer.median)
    }

    /// Our rate as a part of the limit.
    pub fn share_of_limit(&self) -> Option<f64> {
        self.limit.map(|limit| self.ours.median / limit.tokens_per_second)
    }

    /// Milliseconds of a token that reading does not explain.
    pub fn other_ms(&self) -> Option<f64> {
        self.limit.map(|limit| 1e3 / self.ours.median - limit.streaming_ms)
    }
}

/// Reading a prompt, in tokens a second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromptRow {
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Our rate.
    pub ours: Spread,
    /// The peer's.
    pub peer: Option<Spread>,
}

/// A profile of a step at a depth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfileAt {
    /// Sequences of the step.
    pub sequences: usize,
    /// Tokens in the cache of each.
    pub depth: usize,
    /// Bytes of keys and values that the step reads.
    pub kv_bytes: u64,
    /// The times.
    pub profile: Profile,
}

/// Measures what `options` ask for. `engine` has room for [`BenchOptions::context`] tokens, each of `prompts`, of which one
/// at least is there, has as many; `note` is told what is being measured.
///
/// # Errors
/// The engine's or the peer's; options that leave nothing to measure.
pub fn run(
    engine: &mut dyn Engine,
    model: &Model,
    prompts: &[PromptTokens],
    options: &BenchOptions,
    peer: Option<&mut dyn Peer>,
    note: &mut dyn FnMut(&str),
) -> Result<Report> {
    for (count, what) in [
        (options.tokens, "the number of tokens"),
        (options.repetitions, "the number of repetitions"),
        (options.peer_repetitions, "the number of the peer's repetitions"),
        (prompts.len(), "the number of prompts"),
        (
            options.sequences.iter().min().copied().unwrap_or(1),
            "the number of sequences",
        ),
    ] {
        if count == 0 {
            return Err(BenchError::Nothing(what));
        }
    }
    note("memory");
    let read_bandwidth = engine.read_bandwidth()?;
    let (device, tuning) = (engine.description().device.clone(), engine.tuning());
    let mut run = measure::Run {
        engine,
        model,
        prompt: prompts[0].ids(),
        options,
        peer: peer.map(|peer| peer as &mut dyn Peer),
        note,
    };
    let prompt = run.prompts()?;
    let (together, of_many) = run.together()?;
    let (decode, mut profiles) = run.decode(prompts, read_bandwidth)?;
    profiles.extend(of_many);
    Ok(Report {
        model: ModelFacts::of(model),
        device,
        tuning,
        machine: Machine::look(),
        read_bandwidth,
        peer: run.peer.and_then(|peer| peer.facts()),
        tokens: options.tokens,
        prompts: prompts.iter().map(|prompt| prompt.facts().clone()).collect(),
        decode,
        prompt,
        together,
        profiles,
    })
}
