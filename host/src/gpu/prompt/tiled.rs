//! A prompt of any model whose matrices lie in tiles, a chunk of tokens at a time.
//!
//! Counts and positions are arguments of the launches, so a chunk's plan is made when it is needed.

use cuda_std::DevicePtr;
use cuda_std::launch::PreparedLaunch;
use sparkinfer_device::decode::attention::AttentionShape;
use sparkinfer_device::decode::kv::KvFormat;
use sparkinfer_device::decode::plan::LayerCache;
use sparkinfer_device::dense::plan::{After, AttentionWeights, Named, NetworkWeights};
use sparkinfer_device::dense::prompt::{ExpertWeights, PromptBuffers, PromptChunk, PromptSizes};
use sparkinfer_device::embed::Table;
use sparkinfer_device::prefill::append::Chunk;
use sparkinfer_device::prefill::combine::take_row;
use sparkinfer_device::shape::ShapeError;
use sparkinfer_gguf::TensorType;

use crate::gpu::backend::{Backend, DeviceError, Memory, Result};
use crate::gpu::plan::Plan;
use crate::model::{Attention, ModelSpec, Operation, Part};

/// The sizes of the memory of a chunk of up to `chunk` of `context` tokens.
pub fn sizes(spec: &ModelSpec, context: usize, chunk: usize) -> PromptSizes {
    let heads = |f: &dyn Fn(&Attention) -> usize| spec.attentions().map(f).max().unwrap_or(0);
    let none = PromptSizes {
        tokens: chunk.min(context).max(1),
        columns: spec.embedding_length,
        qkv: heads(&|a| (a.heads + 2 * a.kv_heads) * a.head_dim),
        attended: heads(&|a| a.heads * a.head_dim),
        width: 0,
        experts: 0,
        used: 0,
        expert_width: 0,
    };
    spec.layers.iter().flat_map(|layer| &layer.parts).fold(none, with_part)
}

fn with_part(mut sizes: PromptSizes, part: &Part) -> PromptSizes {
    match &part.operation {
        Operation::Attention(_) => {}
        Operation::Dense(dense) => sizes.width = sizes.width.max(dense.width),
        Operation::Moe(moe) => {
            sizes.experts = sizes.experts.max(moe.experts);
            sizes.used = sizes.used.max(moe.used);
            sizes.expert_width = sizes.expert_width.max(moe.width);
        }
    }
    sizes
}

/// What a part does, as the launches take it.
pub enum ChunkWork {
    /// Attention: its shape, the cache's format, dims of a head.
    Attention {
        /// Shape, format of the cache, dims of a head.
        kind: (AttentionShape, KvFormat, u32),
        /// Where its weights lie.
        weights: Box<AttentionWeights>,
        /// Its cache.
        cache: LayerCache,
    },
    /// A gated network.
    Network {
        /// Where its weights lie.
        weights: Box<NetworkWeights>,
        /// Inner values.
        width: u32,
    },
    /// A mixture of experts, no norm behind it.
    Experts(Box<ExpertWeights>),
}

/// A part of a layer as the launches take it.
pub struct ChunkPart {
    /// The layer it belongs to.
    pub layer: usize,
    /// Gains of the norm before it.
    pub norm: DevicePtr<f32>,
    /// The operation.
    pub work: ChunkWork,
    /// What follows.
    pub after: After,
}

/// What a prompt's plans are made from.
pub struct TiledModel {
    /// All parts of all layers.
    pub parts: Vec<ChunkPart>,
    /// The table of embeddings: its type, where it lies, its shape.
    pub embedding: (TensorType, DevicePtr<u8>, Table),
    /// The norms' epsilon.
    pub eps: f32,
    /// The page table.
    pub table: DevicePtr<u32>,
}

impl TiledModel {
    /// The launches from the token ids of a chunk to the residual stream behind the last layer, and its keys and values
    /// in the cache.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plan(&self, b: &PromptBuffers, chunk: Chunk) -> Result<Plan> {
        let (mut plan, (ty, rows, table)) = (Plan::default(), self.embedding);
        let embed = sparkinfer_device::embed::launch(ty, rows, table, b.tokens, b.x, chunk.count as usize);
        plan.push("embed", None, 0, embed.map_err(DeviceError::new)?);
        let of_chunk = PromptChunk {
            columns: table.columns,
            eps: self.eps,
            buffers: b,
            table: self.table,
            chunk,
        };
        for part in &self.parts {
            for (name, launch) in part.launches(&of_chunk).map_err(DeviceError::new)? {
                plan.push(name, Some(part.layer), 0, launch);
            }
        }
        Ok(plan)
    }

    /// Whether the kernels take all of it.
    pub fn taken(&self, sizes: &PromptSizes) -> bool {
        let one = Chunk { count: 1, position: 0 };
        self.plan(&sizes.buffers(0), one)
            .inspect_err(|reason| tracing::info!(%reason, "prompts go token by token"))
            .is_ok()
    }
}

impl ChunkPart {
    fn launches(&self, chunk: &PromptChunk<'_>) -> std::result::Result<Vec<Named>, ShapeError> {
        match &self.work {
            ChunkWork::Attention { kind, weights, cache } => {
                chunk.attention(*kind, self.norm, weights, cache, self.after)
            }
            ChunkWork::Network { weights, width } => chunk.network(self.norm, weights, *width, self.after),
            ChunkWork::Experts(weights) => chunk.experts(self.norm, weights),
        }
    }
}

/// The model of a prompt, and the memory that a chunk works in.
pub struct TiledPrompt {
    model: TiledModel,
    buffers: PromptBuffers,
    chunk: usize,
    /// Tokens that there is memory for.
    room: usize,
    _memory: Box<dyn Memory>,
}

impl TiledPrompt {
    /// Allocates a chunk's memory.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new<B: Backend>(backend: &B, model: TiledModel, sizes: &PromptSizes) -> Result<Self> {
        let memory = backend.allocate(sizes.bytes())?;
        Ok(Self {
            model,
            buffers: sizes.buffers(memory.address()),
            chunk: sizes.tokens,
            room: sizes.tokens,
            _memory: memory,
        })
    }

    /// Tokens of a chunk at most.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Takes chunks of no more than `tokens` tokens, nor of more than there is memory for.
    pub fn limit(&mut self, tokens: usize) {
        self.chunk = tokens.clamp(1, self.room);
    }

    /// Where the token ids of a chunk go before its launches run.
    pub fn tokens(&self) -> DevicePtr<u32> {
        self.buffers.tokens
    }

    /// As [`TiledModel::plan`].
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plan(&self, chunk: Chunk) -> Result<Plan> {
        self.model.plan(&self.buffers, chunk)
    }

    /// The launch that copies the residual stream of token `row` of the chunk to `to`.
    ///
    /// # Errors
    /// None for a model that was loaded.
    pub fn take(&self, row: usize, to: DevicePtr<f32>) -> Result<PreparedLaunch> {
        take_row(self.buffers.x, to, row as u32, self.model.embedding.2.columns).map_err(DeviceError::new)
    }
}
