//! How fast a model runs: prompt and decode rates, beside the memory's limit and beside another engine.
//!
//! Every rate is measured several times after a warm-up, with the cache really filled to its depth, a peer's runs
//! between our own. The report keeps all samples and what they were measured on.

mod limit;
mod machine;
mod measure;
mod peer;
mod plot;
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
    /// What the prompts are made of.
    pub prompt_text: String,
    /// Decode rates.
    pub decode: Vec<DecodeRow>,
    /// Prompt rates.
    pub prompt: Vec<PromptRow>,
    /// Rates of several sequences together.
    pub together: Vec<TogetherRow>,
    /// Times of the stages of a step.
    pub profiles: Vec<ProfileAt>,
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

/// Decoding at a depth, in tokens a second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecodeRow {
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

/// The tokens that fill the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptTokens {
    ids: Vec<u32>,
    description: String,
}

impl PromptTokens {
    /// Tokens from all over a vocabulary of `vocab_size`, the same ones every time.
    pub fn spread(vocab_size: usize, count: usize) -> Self {
        let id = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % vocab_size.max(1) as u64;
        Self {
            ids: (1..=count as u64).map(|i| id(i) as u32).collect(),
            description: "tokens from all over the vocabulary".to_owned(),
        }
    }

    /// The token ids.
    pub fn into_ids(self) -> Vec<u32> {
        self.ids
    }

    /// The tokens of a text called `name`, again and again.
    ///
    /// # Errors
    /// A text without tokens.
    pub fn text(ids: &[u32], name: &str, count: usize) -> Result<Self> {
        if ids.is_empty() {
            return Err(BenchError::Nothing("the number of tokens of the prompt's text"));
        }
        Ok(Self {
            ids: ids.iter().copied().cycle().take(count).collect(),
            description: format!("the text of {name}"),
        })
    }
}

/// Measures what `options` ask for. `engine` has room for [`BenchOptions::context`] tokens, `prompt` has as many;
/// `note` is told what is being measured.
///
/// # Errors
/// The engine's or the peer's; options that leave nothing to measure.
pub fn run(
    engine: &mut dyn Engine,
    model: &Model,
    prompt: &PromptTokens,
    options: &BenchOptions,
    peer: Option<&mut dyn Peer>,
    note: &mut dyn FnMut(&str),
) -> Result<Report> {
    for (count, what) in [
        (options.tokens, "the number of tokens"),
        (options.repetitions, "the number of repetitions"),
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
        spec: &model.spec,
        prompt: &prompt.ids,
        options,
        peer: peer.map(|peer| peer as &mut dyn Peer),
        note,
    };
    let prompts = run.prompts()?;
    let (together, of_many) = run.together()?;
    let (decode, mut profiles) = run.decode(read_bandwidth)?;
    profiles.extend(of_many);
    Ok(Report {
        model: ModelFacts {
            title: model.spec.title(),
            file: model.gguf.label().to_owned(),
            file_bytes: model.gguf.file_bytes(),
            sha256: None,
        },
        device,
        tuning,
        machine: Machine::look(),
        read_bandwidth,
        peer: run.peer.and_then(|peer| peer.facts()),
        tokens: options.tokens,
        prompt_text: prompt.description.clone(),
        decode,
        prompt: prompts,
        together,
        profiles,
    })
}
