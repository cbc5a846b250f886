//! Launch shapes that were found by trying: how a GPU's launches are cut where more than one way is right.
//!
//! A [`Tuning`] holds the choices. Without anything better they are those of [`Tuning::default`], rules that depend on
//! nothing but the number of multiprocessors.
//!
//! Steps of several sequences are cut by rule alone.
//!
//! **Determinism**: a tuning fixes every launch, so the same tuning gives the same bytes on the same GPU. Another one may
//! add partial sums in another order: the last bits of logits then differ, and of two tokens that are equally likely but
//! for those bits the other one may be chosen.

mod choice;
mod known;
pub mod report;
pub mod search;
pub mod store;
mod table;
pub mod trial;

#[cfg(all(test, feature = "bundled-model"))]
mod tests;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use choice::{CHOICES, Choice, Workload};
pub use known::{Known, Origin, TuningSource};
pub use report::{Rates, Report};
pub use store::Key;
pub use trial::TrialSizes;

use crate::engine::{Engine, Result};
use crate::gpu::{Backend, GpuEngine};
use trial::EngineTrials;

/// The choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// Blocks of attention a key head; 0: as many as make one block a multiprocessor.
    pub attention_splits: u32,
    /// Warps of a block of attention.
    pub attention_warps: u32,
    /// Chunks of 16 tokens that a block of attention takes before another one gets work.
    pub attention_least_chunks: u32,
    /// Blocks a multiprocessor that make logits, or look for the best one: enough that their loads overlap.
    pub head_blocks: u32,
    /// Blocks a multiprocessor over which the general path's large launches stride at most.
    pub row_blocks: u32,
    /// Warps a multiprocessor that multiply tiles at most on the general path: what registers leave room for.
    pub tile_warps: u32,
    /// Steps in one recording: the device feeds itself meanwhile.
    pub graph_steps: u32,
    /// Tokens of a prompt's chunk at most: enough that each of many experts has a full tile of them, few enough that a
    /// chunk's memory is small beside the weights.
    pub prompt_chunk: u32,
    /// Tokens from which on a prompt is worth a chunk: fewer are faster as decode steps.
    pub shortest_chunk: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            attention_splits: 0,
            attention_warps: 8,
            attention_least_chunks: 8,
            head_blocks: 4,
            row_blocks: 16,
            tile_warps: 32,
            graph_steps: 1,
            prompt_chunk: 512,
            shortest_chunk: 4,
        }
    }
}

impl Tuning {
    /// Refuses what no launch can be made from.
    ///
    /// # Errors
    /// The first choice that is out of its range, with both.
    pub fn check(&self) -> std::result::Result<(), String> {
        CHOICES.iter().try_for_each(|choice| choice.check(self))
    }
}

/// How to search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuneOptions {
    /// What is timed.
    pub sizes: TrialSizes,
    /// Times that each value is timed.
    pub rounds: usize,
    /// How long the search may take; what it has not come to then stays as it is.
    pub budget: Duration,
}

/// Searches `choices` for the model and the device of `engine`, which is loaded with room for what is tried, and leaves it
/// with the tuning found.
///
/// # Errors
/// The device's, or no depth that the model has room for.
pub fn tune<B: Backend>(
    engine: &mut GpuEngine<B>,
    start: Tuning,
    choices: &[&Choice],
    options: &TuneOptions,
) -> Result<Report> {
    let began = Instant::now();
    engine.retune(start)?;
    let description = engine.description().clone();
    let mut trials = EngineTrials::new(engine, options.sizes.clone(), began + options.budget)?;
    let (after, findings) = search::search(start, choices, options.rounds, &mut trials)?;
    let mut rates = Vec::new();
    if after != start {
        let compared = trials.compare([start, after], options.rounds)?;
        for (depth, [before, after]) in trials.depths().into_iter().zip(compared) {
            rates.extend(before.zip(after).map(|(before, after)| Rates { depth, before, after }));
        }
    }
    engine.retune(after)?;
    Ok(Report {
        model: description.model,
        device: description.device,
        before: start,
        after,
        findings,
        rates,
        seconds: began.elapsed().as_secs_f64(),
    })
}
