//! A prompt of a fused model, a chunk of tokens at a time.
//!
//! Counts and positions are arguments of the launches, so a chunk's plan is made when it is needed; making it takes
//! less than the device takes for the chunk before. [`sizes`] says whether the kernels take a model: where they do not
//! (other head sizes than 64 and 128, windows, score caps), the engine takes prompts token by token.

use cuda_std::DevicePtr;
use cuda_std::launch::PreparedLaunch;
use sparkinfer_device::decode::plan::{LayerCache, LayerWeights};
use sparkinfer_device::embed::Table;
use sparkinfer_device::prefill::append::Chunk;
use sparkinfer_device::prefill::combine::take_row;
use sparkinfer_device::prefill::plan::{PromptBuffers, PromptShape, PromptSizes, layer};
use sparkinfer_gguf::TensorType;

use super::backend::{Backend, DeviceError, Memory, Result};
use super::decode::{DecodeParts, attention_shape};
use super::layers::{FusedAttention, FusedExperts, FusedModel};
use super::plan::Plan;
use crate::model::ModelSpec;

/// The sizes of the memory of a chunk of up to `chunk` of `context` tokens, or none where the kernels do not take the
/// model.
pub fn sizes(spec: &ModelSpec, model: &FusedModel, context: usize, chunk: usize) -> Option<PromptSizes> {
    let taken = |part: &FusedAttention| {
        let attention = &part.spec;
        matches!(attention.head_dim, 64 | 128) && attention.window.is_none() && attention.softcap.is_none()
    };
    if !model.layers.iter().all(|(attention, _)| taken(attention)) {
        return None;
    }
    let most = |f: &dyn Fn(&FusedAttention, &FusedExperts) -> usize| {
        model
            .layers
            .iter()
            .map(|(attention, experts)| f(attention, experts))
            .max()
            .unwrap_or(0)
    };
    Some(PromptSizes {
        tokens: chunk.min(context).max(1),
        columns: spec.embedding_length,
        qkv: most(&|a, _| (a.spec.heads + 2 * a.spec.kv_heads) * a.spec.head_dim),
        attended: most(&|a, _| a.spec.heads * a.spec.head_dim),
        experts: most(&|_, e| e.spec.experts),
        used: most(&|_, e| e.spec.used),
        ff: most(&|_, e| e.spec.width),
    })
}

/// A layer as the launches take it.
struct PromptLayer {
    shape: PromptShape,
    weights: LayerWeights,
    cache: LayerCache,
}

/// What a prompt's plans are made from, and the memory that they work in.
pub struct Prompt {
    layers: Vec<PromptLayer>,
    embedding: (TensorType, DevicePtr<u8>, Table),
    page_table: DevicePtr<u32>,
    buffers: PromptBuffers,
    chunk: usize,
    /// Tokens that there is memory for.
    room: usize,
    _memory: Box<dyn Memory>,
}

impl Prompt {
    /// Allocates a chunk's memory and collects what the plans need.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new<B: Backend>(backend: &B, parts: &DecodeParts<'_>, sizes: &PromptSizes) -> Result<Self> {
        let memory = backend.allocate(sizes.bytes())?;
        let layers = parts.model.layers.iter().enumerate();
        Ok(Self {
            layers: layers
                .map(|(i, (attention, experts))| prompt_layer(parts, i, attention, experts))
                .collect(),
            embedding: parts.embedding_table(),
            page_table: parts.buffers.step.table,
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

    /// The launches from the token ids of a chunk to the residual stream behind the last layer, and its keys and values
    /// in the cache.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plan(&self, chunk: Chunk) -> Result<Plan> {
        let mut plan = Plan::default();
        let (b, (ty, rows, table)) = (&self.buffers, self.embedding);
        let embed = sparkinfer_device::embed::launch(ty, rows, table, b.tokens, b.x, chunk.count as usize);
        plan.push("embed", None, 0, embed.map_err(DeviceError::new)?);
        for (i, part) in self.layers.iter().enumerate() {
            let launches = layer(&part.shape, &part.weights, &part.cache, b, self.page_table, chunk);
            for named in launches.map_err(DeviceError::new)? {
                plan.push(named.name, Some(i), named.bytes, named.launch);
            }
        }
        Ok(plan)
    }

    /// The launch that copies the residual stream of token `row` of the chunk to `to`.
    ///
    /// # Errors
    /// None for a model that was loaded.
    pub fn take(&self, row: usize, to: DevicePtr<f32>) -> Result<PreparedLaunch> {
        take_row(self.buffers.x, to, row as u32, self.embedding.2.columns).map_err(DeviceError::new)
    }
}

fn prompt_layer(parts: &DecodeParts<'_>, layer: usize, a: &FusedAttention, e: &FusedExperts) -> PromptLayer {
    PromptLayer {
        shape: PromptShape {
            attention: attention_shape(parts.spec, &a.spec, parts.buffers.page_bytes),
            format: parts.buffers.format,
            head_dim: a.spec.head_dim as u32,
            experts: parts.expert_shape(e),
        },
        weights: parts.layer_weights(layer, a, e),
        cache: parts.buffers.cache(layer),
    }
}
