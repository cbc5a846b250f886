//! Any model as the general kernels take it: matrices as in the file, one operation a launch.
//!
//! The mirror of [`ModelSpec`] with a place for every weight; [`plan`] makes the launches. Whatever an architecture has
//! (biases, second scales, norms behind operations, windows, caps, shared experts) is data here too.

mod plan;
#[cfg(test)]
mod tests;

use sparkinfer_device::decode::attention::AttentionPlan;
use sparkinfer_device::gemv::rank_stride;

use super::buffers::{BufferSizes, pages_for};
use super::decode::{attention_shape, page_stride};
use super::layers::place_frequencies;
use super::matrix::Form;
use super::weights::WeightMap;
use crate::model::{Attention, Dense, Linear, ModelSpec, Moe, Operation, Part, Vector};

pub use plan::GeneralParts;
use plan::WorkSizes;

/// Blocks a multiprocessor over which large launches stride at most.
const BLOCKS_PER_SM: u32 = 16;
/// Blocks a multiprocessor that look for the best token.
const BEST_BLOCKS_PER_SM: u32 = 4;

/// A matrix (or one for each expert) with its second scale and bias, and where they lie among the weights.
#[derive(Debug, Clone, PartialEq)]
struct Product {
    linear: Linear,
    offset: u64,
    scale: Option<u64>,
    bias: Option<u64>,
}

/// An attention part.
#[derive(Debug, Clone, PartialEq)]
struct PlacedAttention {
    spec: Attention,
    q: Product,
    k: Product,
    v: Product,
    output: Product,
    head_norms: [Option<u64>; 2],
    frequencies: u64,
    /// Which of the model's caches is its own.
    cache: usize,
}

/// The three matrices of a gated network, or of all experts.
#[derive(Debug, Clone, PartialEq)]
struct Network {
    width: usize,
    activation: crate::model::Activation,
    gate: Product,
    up: Product,
    down: Product,
}

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq)]
struct PlacedMoe {
    spec: Moe,
    router: Product,
    experts: Network,
    shared: Option<(Network, Option<Product>)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Placed {
    Attention(Box<PlacedAttention>),
    Dense(Box<Network>),
    Moe(Box<PlacedMoe>),
}

#[derive(Debug, Clone, PartialEq)]
struct PlacedPart {
    norm: u64,
    operation: Placed,
    post_norm: Option<u64>,
}

/// A model whose weights have their places.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneralModel {
    /// Whether everything is computed in f32, also where a faster kernel takes it.
    pub exact: bool,
    embedding: Product,
    layers: Vec<Vec<PlacedPart>>,
    output_norm: u64,
    output: Product,
}

impl Product {
    fn place(linear: &Linear, map: &mut WeightMap) -> Self {
        let mut vector = |vector: &Option<Vector>| vector.as_ref().map(|vector| map.vector(vector));
        let (scale, bias) = (vector(&linear.scale), vector(&linear.bias));
        Self {
            offset: map.matrix(&linear.matrix, Form::File),
            scale,
            bias,
            linear: linear.clone(),
        }
    }
}

impl Network {
    fn place(dense: &Dense, map: &mut WeightMap) -> Self {
        Self {
            width: dense.width,
            activation: dense.activation,
            gate: Product::place(&dense.gate, map),
            up: Product::place(&dense.up, map),
            down: Product::place(&dense.down, map),
        }
    }

    fn place_experts(moe: &Moe, map: &mut WeightMap) -> Self {
        Self {
            width: moe.width,
            activation: moe.activation,
            gate: Product::place(&moe.gate, map),
            up: Product::place(&moe.up, map),
            down: Product::place(&moe.down, map),
        }
    }
}

fn place_attention(spec: &Attention, cache: usize, map: &mut WeightMap) -> PlacedAttention {
    PlacedAttention {
        q: Product::place(&spec.q, map),
        k: Product::place(&spec.k, map),
        v: Product::place(&spec.v, map),
        output: Product::place(&spec.output, map),
        head_norms: [&spec.q_norm, &spec.k_norm].map(|norm| norm.as_ref().map(|norm| map.vector(norm))),
        frequencies: place_frequencies(spec, map),
        cache,
        spec: spec.clone(),
    }
}

fn place_moe(spec: &Moe, map: &mut WeightMap) -> PlacedMoe {
    let shared = spec.shared.as_ref().map(|shared| {
        let gate = shared.gate.as_ref().map(|gate| Product::place(gate, map));
        (Network::place(&shared.network, map), gate)
    });
    PlacedMoe {
        router: Product::place(&spec.router, map),
        experts: Network::place_experts(spec, map),
        shared,
        spec: spec.clone(),
    }
}

fn place_part(part: &Part, caches: &mut usize, map: &mut WeightMap) -> PlacedPart {
    let operation = match &part.operation {
        Operation::Attention(attention) => {
            *caches += 1;
            Placed::Attention(Box::new(place_attention(attention, *caches - 1, map)))
        }
        Operation::Dense(dense) => Placed::Dense(Box::new(Network::place(dense, map))),
        Operation::Moe(moe) => Placed::Moe(Box::new(place_moe(moe, map))),
    };
    PlacedPart {
        norm: map.vector(&part.norm),
        operation,
        post_norm: part.post_norm.as_ref().map(|norm| map.vector(norm)),
    }
}

impl GeneralModel {
    /// Places the weights of `spec` in `map`.
    pub fn describe(spec: &ModelSpec, exact: bool, map: &mut WeightMap) -> Self {
        let mut caches = 0;
        let layers = spec.layers.iter().map(|layer| {
            let parts = layer.parts.iter().map(|part| place_part(part, &mut caches, map));
            parts.collect()
        });
        Self {
            exact,
            layers: layers.collect(),
            embedding: Product::place(&spec.embedding.table, map),
            output_norm: map.vector(&spec.output_norm),
            output: Product::place(&spec.output, map),
        }
    }

    /// The sizes of the buffers that the plan uses, with room for `context` tokens.
    pub fn buffer_sizes(&self, spec: &ModelSpec, context: usize, multiprocessors: u32) -> BufferSizes {
        let most = |f: &dyn Fn(&Attention) -> usize| spec.attentions().map(f).max().unwrap_or(0);
        let work = WorkSizes::of(spec);
        let workspace = |a: &Attention| self.fast(spec, a, page_stride(a), multiprocessors);
        BufferSizes {
            hidden: spec.embedding_length,
            qkv: most(&|a| (a.heads + 2 * a.kv_heads) * a.head_dim),
            attended: most(&|a| a.heads * a.head_dim),
            experts: work.experts,
            inner: work.inner,
            vocab: spec.vocab_size,
            candidates: (BEST_BLOCKS_PER_SM * multiprocessors) as usize,
            partial: most(&|a| workspace(a).map_or(0, |plan| plan.workspace_floats())),
            kv_heads: most(&|a| a.kv_heads),
            work: work.floats(),
            layers: spec.attentions().count(),
            page_stride: most(&|a| page_stride(a) as usize),
            pages: pages_for(context),
        }
    }

    /// The launch shape of a fast attention kernel, where one takes the part and is allowed.
    fn fast(
        &self,
        spec: &ModelSpec,
        attention: &Attention,
        page_stride: u32,
        multiprocessors: u32,
    ) -> Option<AttentionPlan> {
        let shape = attention_shape(spec, attention, page_stride);
        let plan = AttentionPlan::new(shape, attention.head_dim as u32, multiprocessors);
        plan.ok().filter(|_| !self.exact)
    }
}

/// Floats of `ranks` results of `rows` rows.
fn ranked(ranks: usize, rows: usize) -> usize {
    ranks * rank_stride(rows as u32) as usize
}
