//! Any model as the general kernels take it: one operation a launch. Matrices lie in tensor-core tiles, those of types
//! without tiles as in the file; in exact arithmetic all do.
//!
//! The mirror of [`ModelSpec`] with a place for every weight; [`plan`] makes the launches. Whatever an architecture has
//! (biases, second scales, norms behind operations, windows, caps, shared experts) is data here too.

mod plan;
mod prompt;
#[cfg(test)]
mod tests;
mod work;

use sparkinfer_device::decode::attention::AttentionPlan;
use sparkinfer_device::decode::kv::KvFormat;
use sparkinfer_device::gemv::rank_stride;

use super::buffers::{BufferSizes, CacheRoom, pages_for};
use super::decode::{attention_shape, attention_workspace, page_bytes};
use super::layers::place_frequencies;
use super::matrix::Form;
use super::target::Target;
use super::weights::WeightMap;
use crate::model::{Attention, Dense, Linear, ModelSpec, Moe, Operation, Part, Vector};

pub use plan::GeneralParts;
use work::WorkSizes;

/// A matrix (or one for each expert) with its second scale and bias, and where they lie among the weights.
#[derive(Debug, Clone, PartialEq)]
struct Product {
    linear: Linear,
    form: Form,
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

/// Where weights are placed, and how.
struct Placer<'a> {
    map: &'a mut WeightMap,
    exact: bool,
}

impl Placed {
    /// The products that read the norm before the operation.
    fn readers(&self) -> Vec<&Product> {
        match self {
            Self::Attention(part) => vec![&part.q, &part.k, &part.v],
            Self::Dense(network) => vec![&network.gate, &network.up],
            Self::Moe(moe) => {
                let mut readers = vec![&moe.router, &moe.experts.gate, &moe.experts.up];
                if let Some((network, gate)) = &moe.shared {
                    readers.extend([&network.gate, &network.up]);
                    readers.extend(gate);
                }
                readers
            }
        }
    }
}

impl Product {
    /// A matrix of its own kind: in tiles where its type has them, unless the arithmetic is exact.
    fn place(linear: &Linear, placer: &mut Placer) -> Self {
        let tiled = Form::tiled(&linear.matrix).filter(|_| !placer.exact);
        Self::place_as(tiled.unwrap_or(Form::File), linear, placer.map)
    }

    fn place_as(form: Form, linear: &Linear, map: &mut WeightMap) -> Self {
        let mut vector = |vector: &Option<Vector>| vector.as_ref().map(|vector| map.vector(vector));
        let (scale, bias) = (vector(&linear.scale), vector(&linear.bias));
        Self {
            offset: map.matrix(&linear.matrix, form),
            form,
            scale,
            bias,
            linear: linear.clone(),
        }
    }
}

impl Network {
    fn place(dense: &Dense, placer: &mut Placer) -> Self {
        Self {
            width: dense.width,
            activation: dense.activation,
            gate: Product::place(&dense.gate, placer),
            up: Product::place(&dense.up, placer),
            down: Product::place(&dense.down, placer),
        }
    }

    fn place_experts(moe: &Moe, placer: &mut Placer) -> Self {
        Self {
            width: moe.width,
            activation: moe.activation,
            gate: Product::place(&moe.gate, placer),
            up: Product::place(&moe.up, placer),
            down: Product::place(&moe.down, placer),
        }
    }
}

fn place_attention(spec: &Attention, cache: usize, placer: &mut Placer) -> PlacedAttention {
    PlacedAttention {
        q: Product::place(&spec.q, placer),
        k: Product::place(&spec.k, placer),
        v: Product::place(&spec.v, placer),
        output: Product::place(&spec.output, placer),
        head_norms: [&spec.q_norm, &spec.k_norm].map(|norm| norm.as_ref().map(|norm| placer.map.vector(norm))),
        frequencies: place_frequencies(spec, placer.map),
        cache,
        spec: spec.clone(),
    }
}

fn place_moe(spec: &Moe, placer: &mut Placer) -> PlacedMoe {
    let shared = spec.shared.as_ref().map(|shared| {
        let gate = shared.gate.as_ref().map(|gate| Product::place(gate, placer));
        (Network::place(&shared.network, placer), gate)
    });
    PlacedMoe {
        router: Product::place(&spec.router, placer),
        experts: Network::place_experts(spec, placer),
        shared,
        spec: spec.clone(),
    }
}

fn place_part(part: &Part, caches: &mut usize, placer: &mut Placer) -> PlacedPart {
    let operation = match &part.operation {
        Operation::Attention(attention) => {
            *caches += 1;
            Placed::Attention(Box::new(place_attention(attention, *caches - 1, placer)))
        }
        Operation::Dense(dense) => Placed::Dense(Box::new(Network::place(dense, placer))),
        Operation::Moe(moe) => Placed::Moe(Box::new(place_moe(moe, placer))),
    };
    PlacedPart {
        norm: placer.map.vector(&part.norm),
        operation,
        post_norm: part.post_norm.as_ref().map(|norm| placer.map.vector(norm)),
    }
}

impl GeneralModel {
    /// Places the weights of `spec` in `map`. A table that is the output matrix too lies there twice where its type has
    /// tiles: rows are looked up as in the file.
    pub fn describe(spec: &ModelSpec, exact: bool, map: &mut WeightMap) -> Self {
        let (mut caches, mut placer) = (0, Placer { map, exact });
        let layers = spec.layers.iter().map(|layer| {
            let parts = layer
                .parts
                .iter()
                .map(|part| place_part(part, &mut caches, &mut placer));
            parts.collect()
        });
        Self {
            exact,
            layers: layers.collect(),
            output: Product::place(&spec.output, &mut placer),
            embedding: Product::place_as(Form::File, &spec.embedding.table, map),
            output_norm: map.vector(&spec.output_norm),
        }
    }

    /// The sizes of the buffers that the plan uses.
    pub fn buffer_sizes(&self, spec: &ModelSpec, room: CacheRoom, target: &Target) -> BufferSizes {
        let format = room.format;
        let most = |f: &dyn Fn(&Attention) -> usize| spec.attentions().map(f).max().unwrap_or(0);
        let work = WorkSizes::of(spec);
        BufferSizes {
            hidden: spec.embedding_length,
            qkv: most(&|a| (a.heads + 2 * a.kv_heads) * a.head_dim),
            attended: most(&|a| a.heads * a.head_dim),
            experts: work.experts,
            inner: work.inner,
            vocab: spec.vocab_size,
            candidates: target.most_candidates(),
            partial: most(&|a| attention_workspace(spec, a, format, target)),
            heads: most(&|a| a.heads),
            work: work.floats(),
            layers: spec.attentions().count(),
            format,
            page_bytes: most(&|a| page_bytes(format, a) as usize),
            pages: room.sequences * pages_for(room.context),
        }
    }

    /// The launch shape of a fast attention kernel, where one takes the part and is allowed; the cache has pages of a
    /// format, that many bytes apart.
    fn fast(
        &self,
        spec: &ModelSpec,
        attention: &Attention,
        (format, page_bytes): (KvFormat, u32),
        target: &Target,
    ) -> Option<AttentionPlan> {
        let shape = attention_shape(spec, attention, page_bytes);
        let plan = target.attention(shape, format, attention.head_dim as u32);
        plan.ok().filter(|_| !self.exact)
    }
}

/// Floats of `ranks` results of `rows` rows.
fn ranked(ranks: usize, rows: usize) -> usize {
    ranks * rank_stride(rows as u32) as usize
}
