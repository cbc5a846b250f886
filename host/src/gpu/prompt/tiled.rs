//! A prompt of any model whose matrices lie in tiles, a chunk of tokens at a time.

use cuda_std::DevicePtr;
use sparkinfer_device::decode::attention::AttentionShape;
use sparkinfer_device::decode::kv::KvFormat;
use sparkinfer_device::decode::plan::LayerCache;
use sparkinfer_device::dense::plan::{After, AttentionWeights, Named, NetworkWeights};
use sparkinfer_device::dense::prompt::{ExpertWeights, PromptBuffers, PromptChunk, PromptSizes};
use sparkinfer_device::prefill::append::Chunk;
use sparkinfer_device::shape::ShapeError;

use super::{Beginning, EmbeddingTable, Layers, Prompt};
use crate::gpu::backend::{Backend, DeviceError, Result};
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
    /// The table of embeddings.
    pub embedding: EmbeddingTable,
    /// The norms' epsilon.
    pub eps: f32,
    /// The page table.
    pub table: DevicePtr<u32>,
}

impl TiledModel {
    /// Whether the kernels take all of it.
    pub fn taken(&self, sizes: &PromptSizes) -> bool {
        let one = Chunk { count: 1, position: 0 };
        self.push(&sizes.buffers(0), &mut Plan::default(), one)
            .inspect_err(|reason| tracing::info!(%reason, "prompts go token by token"))
            .is_ok()
    }

    /// Allocates a chunk's memory.
    ///
    /// # Errors
    /// Out of memory.
    pub fn prompt<B: Backend>(self, backend: &B, sizes: &PromptSizes) -> Result<Prompt> {
        let memory = backend.allocate(sizes.bytes())?;
        let (buffers, embedding) = (sizes.buffers(memory.address()), self.embedding);
        let beginning = Beginning {
            tokens: buffers.tokens,
            x: buffers.x,
            room: sizes.tokens,
        };
        let layers = TiledLayers { model: self, buffers };
        Ok(Prompt::new(Box::new(layers), embedding, beginning, memory))
    }

    fn push(&self, buffers: &PromptBuffers, plan: &mut Plan, chunk: Chunk) -> Result<()> {
        let of_chunk = PromptChunk {
            columns: self.embedding.2.columns,
            eps: self.eps,
            buffers,
            table: self.table,
            chunk,
        };
        for part in &self.parts {
            for (name, launch) in part.launches(&of_chunk).map_err(DeviceError::new)? {
                plan.push(name, Some(part.layer), 0, launch);
            }
        }
        Ok(())
    }
}

/// The model of a prompt, and where a chunk of it works.
struct TiledLayers {
    model: TiledModel,
    buffers: PromptBuffers,
}

impl Layers for TiledLayers {
    fn push(&self, plan: &mut Plan, chunk: Chunk) -> Result<()> {
        self.model.push(&self.buffers, plan, chunk)
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
