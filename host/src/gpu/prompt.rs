//! Prompts, a chunk of tokens at a time, by whichever kernels take the model.

pub mod tiled;

use cuda_std::DevicePtr;
use cuda_std::launch::PreparedLaunch;
use sparkinfer_device::prefill::append::Chunk;
use sparkinfer_device::{dense, prefill};

use super::backend::Result;
use super::plan::Plan;
use super::prefill::Prompt as FusedPrompt;
use tiled::TiledPrompt;

/// Sizes of the memory of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptSizes {
    /// Of a fused model.
    Fused(prefill::plan::PromptSizes),
    /// Of any model in tiles.
    Tiled(dense::prompt::PromptSizes),
}

impl PromptSizes {
    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Fused(sizes) => sizes.bytes(),
            Self::Tiled(sizes) => sizes.bytes(),
        }
    }
}

/// What a prompt's plans are made from, and the memory that they work in.
pub enum Prompt {
    /// Of a fused model.
    Fused(FusedPrompt),
    /// Of any model in tiles.
    Tiled(TiledPrompt),
}

/// Calls the method of either kind.
macro_rules! either {
    ($prompt:expr, $call:ident($($argument:expr),*)) => {
        match $prompt {
            Prompt::Fused(prompt) => prompt.$call($($argument),*),
            Prompt::Tiled(prompt) => prompt.$call($($argument),*),
        }
    };
}

impl Prompt {
    /// Tokens of a chunk at most.
    pub fn chunk(&self) -> usize {
        either!(self, chunk())
    }

    /// Takes chunks of no more than `tokens` tokens, nor of more than there is memory for.
    pub fn limit(&mut self, tokens: usize) {
        either!(self, limit(tokens));
    }

    /// Where the token ids of a chunk go before its launches run.
    pub fn tokens(&self) -> DevicePtr<u32> {
        either!(self, tokens())
    }

    /// The launches from the token ids of a chunk to the residual stream behind the last layer, and its keys and values
    /// in the cache.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plan(&self, chunk: Chunk) -> Result<Plan> {
        either!(self, plan(chunk))
    }

    /// The launch that copies the residual stream of token `row` of the chunk to `to`.
    ///
    /// # Errors
    /// None for a model that was loaded.
    pub fn take(&self, row: usize, to: DevicePtr<f32>) -> Result<PreparedLaunch> {
        either!(self, take(row, to))
    }
}
