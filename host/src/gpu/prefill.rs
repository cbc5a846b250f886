//! A prompt of a fused model, a chunk of tokens at a time.
//!
//! [`sizes`] says whether the kernels take a model: where they do not (other head sizes than 64 and 128, windows, score
//! caps), the engine takes prompts token by token.

use cuda_std::DevicePtr;
use sparkinfer_device::decode::plan::{LayerCache, LayerWeights};
use sparkinfer_device::prefill::append::Chunk;
use sparkinfer_device::prefill::plan::{PromptBuffers, PromptShape, PromptSizes, layer};

use super::backend::{Backend, DeviceError, Result};
use super::decode::{DecodeParts, attention_shape};
use super::layers::{FusedAttention, FusedExperts, FusedModel};
use super::plan::Plan;
use super::prompt::{Beginning, Layers, Prompt};
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

/// All layers as the launches take them, and the memory that they work in.
struct FusedLayers {
    layers: Vec<PromptLayer>,
    page_table: DevicePtr<u32>,
    buffers: PromptBuffers,
}

/// Allocates a chunk's memory and collects what prompts are made from.
///
/// # Errors
/// Out of memory.
pub fn prompt<B: Backend>(backend: &B, parts: &DecodeParts<'_>, sizes: &PromptSizes) -> Result<Prompt> {
    let memory = backend.allocate(sizes.bytes())?;
    let buffers = sizes.buffers(memory.address());
    let layers = parts.model.layers.iter().enumerate();
    let layers = FusedLayers {
        layers: layers
            .map(|(i, (attention, experts))| prompt_layer(parts, i, attention, experts))
            .collect(),
        page_table: parts.buffers.step.table,
        buffers,
    };
    let beginning = Beginning {
        tokens: buffers.tokens,
        x: buffers.x,
        room: sizes.tokens,
    };
    Ok(Prompt::new(
        Box::new(layers),
        parts.embedding_table(),
        beginning,
        memory,
    ))
}

impl Layers for FusedLayers {
    fn push(&self, plan: &mut Plan, chunk: Chunk) -> Result<()> {
        for (i, part) in self.layers.iter().enumerate() {
            let (b, table) = (&self.buffers, self.page_table);
            let launches = layer(&part.shape, &part.weights, &part.cache, b, table, chunk);
            for named in launches.map_err(DeviceError::new)? {
                plan.push(named.name, Some(i), named.bytes, named.launch);
            }
        }
        Ok(())
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
