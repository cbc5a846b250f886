//! The description of a model that engines read.

use sparkinfer_gguf::Gguf;

use super::arch;
use super::error::Result;
use super::params::Params;
use super::rope::Rope;
use super::tensors::{Linear, Vector};

/// A model: hyper-parameters and parts, checked against the tensors of its file.
///
/// One token with id t is computed as
/// ```text
/// x = embedding[t] · embedding.scale
/// for every layer, for every part:  x = x + post_norm(operation(norm(x)))
/// logits = output · rms(x, output_norm);  with a softcap c:  c · tanh(logits / c)
/// ```
/// where every norm is `x / sqrt(mean(x²) + norm_eps) · weight`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`, if the file has one.
    pub name: Option<String>,
    /// Tokens that the model was made for.
    pub context_length: usize,
    /// Width of the residual stream.
    pub embedding_length: usize,
    /// Rows of the embedding, and number of logits.
    pub vocab_size: usize,
    /// Added to the mean square in every norm.
    pub norm_eps: f32,
    /// Where x begins.
    pub embedding: Embedding,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// The last norm, `[embedding_length]`.
    pub output_norm: Vector,
    /// From the last norm to logits, `[embedding_length → vocab_size]`.
    pub output: Linear,
    /// Bounds the logits.
    pub logit_softcap: Option<f32>,
}

/// The embedding: a row per token, times a constant.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// `[embedding_length → vocab_size]`; row t is token t's.
    pub table: Linear,
    /// Multiplies the row.
    pub scale: f32,
}

/// A layer: its parts in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Attention first, then the feed-forward part, in every architecture so far.
    pub parts: Vec<Part>,
}

/// A step of the residual stream: `x + post_norm(operation(norm(x)))`.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Norm of the operation's input.
    pub norm: Vector,
    /// What is computed from it.
    pub operation: Operation,
    /// Norm of the operation's result (sandwich norms).
    pub post_norm: Option<Vector>,
}

/// What a part computes.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Causal attention with grouped queries.
    Attention(Box<Attention>),
    /// A gated feed-forward network.
    Dense(Box<Dense>),
    /// A mixture of such networks.
    Moe(Box<Moe>),
}

/// Causal attention: query head h reads key/value head `h / (heads / kv_heads)`.
///
/// Order per token: projections with bias, head norms, rotation of q and k, cache, then
/// `softmax(scale · q·k)` over the visible positions, weighted sum of v, output projection.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of every head.
    pub head_dim: usize,
    /// `[embedding_length → heads · head_dim]`.
    pub q: Linear,
    /// `[embedding_length → kv_heads · head_dim]`.
    pub k: Linear,
    /// `[embedding_length → kv_heads · head_dim]`.
    pub v: Linear,
    /// `[heads · head_dim → embedding_length]`.
    pub output: Linear,
    /// Norm of each query head, `[head_dim]`.
    pub q_norm: Option<Vector>,
    /// Norm of each key head, `[head_dim]`.
    pub k_norm: Option<Vector>,
    /// Rotation of q and k.
    pub rope: Rope,
    /// A query at p sees keys at `p − window + 1 ..= p`; all of `0 ..= p` without.
    pub window: Option<usize>,
    /// Multiplies q·k.
    pub scale: f32,
    /// Bounds the scores: `c · tanh(score / c)`.
    pub softcap: Option<f32>,
}

/// `down(activation(gate(x)) · up(x))`.
#[derive(Debug, Clone, PartialEq)]
pub struct Dense {
    /// Inner width.
    pub width: usize,
    /// Applied to the gate.
    pub activation: Activation,
    /// `[embedding_length → width]`.
    pub gate: Linear,
    /// `[embedding_length → width]`.
    pub up: Linear,
    /// `[width → embedding_length]`.
    pub down: Linear,
}

/// A mixture of experts: `weight_scale · Σ w_e · down_e(activation(gate_e(x)) · up_e(x))` over the
/// `used` experts with the highest gating value (the lowest index first among equals).
#[derive(Debug, Clone, PartialEq)]
pub struct Moe {
    /// Number of experts.
    pub experts: usize,
    /// Experts per token.
    pub used: usize,
    /// Inner width of an expert.
    pub width: usize,
    /// Applied to the gate.
    pub activation: Activation,
    /// From the router's logits to gating values.
    pub gating: Gating,
    /// Divides the chosen gating values by their sum (at least 2⁻¹⁴).
    pub renormalise: bool,
    /// Multiplies the chosen gating values.
    pub weight_scale: f32,
    /// `[embedding_length → experts]`.
    pub router: Linear,
    /// `[embedding_length → width]`, a matrix per expert.
    pub gate: Linear,
    /// `[embedding_length → width]`, a matrix per expert.
    pub up: Linear,
    /// `[width → embedding_length]`, a matrix per expert.
    pub down: Linear,
    /// A network that every token passes, added to the sum.
    pub shared: Option<SharedExpert>,
}

/// The network of a mixture that every token passes.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedExpert {
    /// The network.
    pub network: Dense,
    /// `[embedding_length → 1]`: its sigmoid multiplies the network's result.
    pub gate: Option<Linear>,
}

/// The bend in a feed-forward network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + e⁻ˣ)`.
    Silu,
    /// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`.
    GeluTanh,
}

/// How a router's logits become gating values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
}

impl ModelSpec {
    /// Reads and checks the description of the model in `gguf`.
    ///
    /// # Errors
    /// An unsupported architecture; a missing, mistyped or absurd hyper-parameter; a missing tensor
    /// or one whose shape or type does not fit. Each names file, key or tensor, and both shapes.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let architecture = gguf.metadata().require_str("general.architecture")?;
        match arch::find(architecture) {
            Some(describe) => describe(&Params::new(gguf, architecture)),
            None => Err(gguf
                .metadata()
                .error("general.architecture", arch::unsupported(architecture))),
        }
    }

    /// The model as people are told: its name and its architecture.
    pub fn title(&self) -> String {
        let name = self.name.as_deref().unwrap_or("unnamed");
        let printable: String = name.chars().filter(|c| !c.is_control()).collect();
        format!("{printable} ({})", self.architecture)
    }

    /// Every attention part, in the order of the layers: each has its own cache.
    pub fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.layers
            .iter()
            .flat_map(|layer| &layer.parts)
            .filter_map(|part| match &part.operation {
                Operation::Attention(attention) => Some(attention.as_ref()),
                _ => None,
            })
    }

    /// Whether logits are computed with the embedding's own matrix.
    pub fn tied(&self) -> bool {
        self.output.matrix == self.embedding.table.matrix
    }
}
