//! Prompts, a chunk of tokens at a time, by whichever kernels take the model.

pub mod tiled;

use cuda_std::DevicePtr;
use cuda_std::launch::PreparedLaunch;
use sparkinfer_device::embed::{self, Table};
use sparkinfer_device::prefill::append::Chunk;
use sparkinfer_device::prefill::combine::take_row;
use sparkinfer_device::{dense, prefill};
use sparkinfer_gguf::TensorType;

use super::backend::{DeviceError, Memory, Result};
use super::plan::Plan;

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

/// A table of embeddings as launches take it: its type, where it lies, its shape.
pub type EmbeddingTable = (TensorType, DevicePtr<u8>, Table);

/// What makes the launches of a chunk's layers.
pub trait Layers {
    /// Adds the launches from the residual stream of a chunk to that behind the last layer, its keys and values in the
    /// cache.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    fn push(&self, plan: &mut Plan, chunk: Chunk) -> Result<()>;
}

/// Where a chunk begins: its token ids and its residual stream, of up to `room` tokens.
#[derive(Debug, Clone, Copy)]
pub struct Beginning {
    /// The token ids.
    pub tokens: DevicePtr<u32>,
    /// The residual stream, `[token][column]`.
    pub x: DevicePtr<f32>,
    /// Tokens that there is memory for.
    pub room: usize,
}

/// What a prompt's plans are made from, and the memory that they work in.
///
/// Counts and positions are arguments of the launches, so a chunk's plan is made when it is needed; making it takes less
/// than the device takes for the chunk before.
pub struct Prompt {
    layers: Box<dyn Layers>,
    embedding: EmbeddingTable,
    beginning: Beginning,
    chunk: usize,
    _memory: Box<dyn Memory>,
}

impl Prompt {
    /// A prompt through `layers`, which work in `memory`.
    pub(super) fn new(
        layers: Box<dyn Layers>,
        embedding: EmbeddingTable,
        beginning: Beginning,
        memory: Box<dyn Memory>,
    ) -> Self {
        Self {
            layers,
            embedding,
            beginning,
            chunk: beginning.room,
            _memory: memory,
        }
    }

    /// Tokens of a chunk at most.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Takes chunks of no more than `tokens` tokens, nor of more than there is memory for.
    pub fn limit(&mut self, tokens: usize) {
        self.chunk = tokens.clamp(1, self.beginning.room);
    }

    /// Where the token ids of a chunk go before its launches run.
    pub fn tokens(&self) -> DevicePtr<u32> {
        self.beginning.tokens
    }

    /// The launches from the token ids of a chunk to the residual stream behind the last layer, and its keys and values
    /// in the cache.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plan(&self, chunk: Chunk) -> Result<Plan> {
        let (mut plan, (ty, rows, table)) = (Plan::default(), self.embedding);
        let (ids, x) = (self.beginning.tokens, self.beginning.x);
        let embed = embed::launch(ty, rows, table, ids, x, chunk.count as usize);
        plan.push("embed", None, 0, embed.map_err(DeviceError::new)?);
        self.layers.push(&mut plan, chunk)?;
        Ok(plan)
    }

    /// The launch that copies the residual stream of token `row` of the chunk to `to`.
    ///
    /// # Errors
    /// None for a model that was loaded.
    pub fn take(&self, row: usize, to: DevicePtr<f32>) -> Result<PreparedLaunch> {
        let columns = self.embedding.2.columns;
        take_row(self.beginning.x, to, row as u32, columns).map_err(DeviceError::new)
    }
}
