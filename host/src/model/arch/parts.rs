//! The parts that architectures share, read under their usual names.

use super::super::error::Result;
use super::super::params::{MAX_EXPERTS, MAX_WIDTH, Params};
use super::super::rope::{Rope, RopeLayout, RopeScaling};
use super::super::spec::{Activation, Attention, Dense, Embedding, Gating, Layer, ModelSpec, Moe, Operation, Part};
use super::super::tensors::{Linear, Vector};

/// Largest head that an engine must hold.
const MAX_HEAD_DIM: usize = 1024;
/// Most heads of a layer.
const MAX_HEADS: usize = 4096;

/// Everything but the layers.
pub(super) fn frame(p: &Params) -> Result<ModelSpec> {
    let width = p.embedding_length()?;
    let table = embedding_table(p, width)?;
    let vocab_size = table.matrix.rows;
    let eps = p.positive("attention.layer_norm_rms_epsilon")?;
    Ok(ModelSpec {
        architecture: p.architecture().into(),
        name: p.metadata().str("general.name")?.map(String::from),
        context_length: p.count("context_length", 1..=u32::MAX as usize)?,
        embedding_length: width,
        vocab_size,
        norm_eps: p.required("attention.layer_norm_rms_epsilon", eps)?,
        output_norm: p.vector("output_norm.weight", width)?,
        output: match p.optional_stack("output", width, vocab_size, 1)? {
            Some(output) => output,
            None => table.clone(),
        },
        embedding: Embedding { table, scale: 1.0 },
        layers: Vec::new(),
        logit_softcap: None,
    })
}

/// `token_embd`, as many rows as the vocabulary has tokens (or as it has, without a vocabulary).
fn embedding_table(p: &Params, width: usize) -> Result<Linear> {
    let tokens = p.metadata().array("tokenizer.ggml.tokens")?.map(|tokens| tokens.len());
    let rows = tokens.or_else(|| p.tensor("token_embd.weight").map(|tensor| tensor.dims[1] as usize));
    p.linear("token_embd", width, rows.unwrap_or(1))
}

/// All layers: `parts` is called with the number of each.
pub(super) fn layers(p: &Params, parts: impl Fn(usize) -> Result<Vec<Part>>) -> Result<Vec<Layer>> {
    (0..p.block_count()?)
        .map(|layer| Ok(Layer { parts: parts(layer)? }))
        .collect()
}

/// The name of a tensor of a layer.
pub(super) fn block(layer: usize, name: &str) -> String {
    format!("blk.{layer}.{name}")
}

/// A norm of the residual stream's width.
pub(super) fn norm(p: &Params, layer: usize, name: &str) -> Result<Vector> {
    p.vector(&block(layer, &format!("{name}.weight")), p.embedding_length()?)
}

/// A part without a norm of its result.
pub(super) fn part(p: &Params, layer: usize, norm_name: &str, operation: Operation) -> Result<Part> {
    Ok(Part {
        norm: norm(p, layer, norm_name)?,
        operation,
        post_norm: None,
    })
}

/// The usual layer: attention under `attn_norm`, then `feed_forward` under `ffn_norm`.
pub(super) fn usual_layer(
    p: &Params,
    layer: usize,
    attention: Attention,
    feed_forward: Operation,
) -> Result<Vec<Part>> {
    Ok(vec![
        part(p, layer, "attn_norm", Operation::Attention(Box::new(attention)))?,
        part(p, layer, "ffn_norm", feed_forward)?,
    ])
}

/// Full causal attention with a scale of `1/√head_dim`, without head norms.
pub(super) fn attention(p: &Params, layer: usize, layout: RopeLayout) -> Result<Attention> {
    let width = p.embedding_length()?;
    let (heads, kv_heads) = head_counts(p, layer)?;
    let head_dim = head_dim(p, width, heads)?;
    let [q, k, v] = query_key_value(p, layer, width, [heads, kv_heads, kv_heads].map(|n| n * head_dim))?;
    Ok(Attention {
        heads,
        kv_heads,
        head_dim,
        q,
        k,
        v,
        output: p.linear(&block(layer, "attn_output"), heads * head_dim, width)?,
        q_norm: None,
        k_norm: None,
        rope: rope(p, layout, head_dim)?,
        window: None,
        scale: 1.0 / (head_dim as f32).sqrt(),
        softcap: None,
    })
}

/// As [`attention`], with a norm of each query and key head.
pub(super) fn attention_with_head_norms(p: &Params, layer: usize, layout: RopeLayout) -> Result<Attention> {
    let plain = attention(p, layer, layout)?;
    let norm = |name| p.vector(&block(layer, name), plain.head_dim).map(Some);
    Ok(Attention {
        q_norm: norm("attn_q_norm.weight")?,
        k_norm: norm("attn_k_norm.weight")?,
        ..plain
    })
}

/// Query and key/value heads of a layer.
fn head_counts(p: &Params, layer: usize) -> Result<(usize, usize)> {
    let heads = p.layer_count("attention.head_count", layer, 1..=MAX_HEADS)?;
    let heads = p.required("attention.head_count", heads)?;
    let kv_heads = p
        .layer_count("attention.head_count_kv", layer, 1..=MAX_HEADS)?
        .unwrap_or(heads);
    if heads % kv_heads != 0 {
        return Err(p.bad(
            "attention.head_count_kv",
            kv_heads,
            format!("a divisor of the {heads} heads"),
        ));
    }
    Ok((heads, kv_heads))
}

/// The width of a head, which keys and values must share.
fn head_dim(p: &Params, width: usize, heads: usize) -> Result<usize> {
    let limits = 1..=MAX_HEAD_DIM;
    let head_dim = match p.optional_count("attention.key_length", limits.clone())? {
        Some(head_dim) => head_dim,
        None if width.is_multiple_of(heads) && limits.contains(&(width / heads)) => width / heads,
        None => return Err(p.bad("attention.head_count", heads, format!("a divisor of the width {width}"))),
    };
    match p.optional_count("attention.value_length", limits)? {
        Some(value) if value != head_dim => {
            Err(p.bad("attention.value_length", value, format!("the key length {head_dim}")))
        }
        _ => Ok(head_dim),
    }
}

/// The three projections, `rows` of each, from tensors of their own or from a fused one.
fn query_key_value(p: &Params, layer: usize, width: usize, rows: [usize; 3]) -> Result<[Linear; 3]> {
    let Some(fused) = p.optional_stack(&block(layer, "attn_qkv"), width, rows.iter().sum(), 1)? else {
        let linear = |name, rows| p.linear(&block(layer, name), width, rows);
        return Ok([
            linear("attn_q", rows[0])?,
            linear("attn_k", rows[1])?,
            linear("attn_v", rows[2])?,
        ]);
    };
    let slice = |name: &str, first: usize, rows: usize| -> Result<Linear> {
        let mut linear = fused.rows(first, rows);
        if linear.bias.is_none() {
            linear.bias = p.optional_vector(&block(layer, &format!("{name}.bias")), rows)?;
        }
        Ok(linear)
    };
    Ok([
        slice("attn_q", 0, rows[0])?,
        slice("attn_k", rows[0], rows[1])?,
        slice("attn_v", rows[0] + rows[1], rows[2])?,
    ])
}

/// The rotation of heads of width `head_dim`, with the file's scaling.
fn rope(p: &Params, layout: RopeLayout, head_dim: usize) -> Result<Rope> {
    let dims = p
        .optional_count("rope.dimension_count", 2..=head_dim)?
        .unwrap_or(head_dim);
    if !dims.is_multiple_of(2) {
        return Err(p.bad("rope.dimension_count", dims, "even"));
    }
    Ok(Rope {
        layout,
        dims,
        base: rope_base(p, "rope.freq_base")?.unwrap_or(10_000.0),
        scaling: rope_scaling(p)?,
        factors: Vec::new(),
    })
}

/// A base above 1: at 1 all pairs would turn alike.
pub(super) fn rope_base(p: &Params, suffix: &str) -> Result<Option<f64>> {
    match p.positive(suffix)? {
        Some(base) if base <= 1.0 => Err(p.bad(suffix, base, "above 1")),
        base => Ok(base.map(f64::from)),
    }
}

/// `rope.scaling.*`, or the older `rope.scale_linear`. Without a type a factor means linear scaling.
fn rope_scaling(p: &Params) -> Result<RopeScaling> {
    let factor = match p.positive_or_unset("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => p.positive_or_unset("rope.scale_linear")?,
    };
    let factor = f64::from(factor.unwrap_or(1.0));
    match p.text("rope.scaling.type")? {
        Some("none") => Ok(RopeScaling::None),
        None | Some("linear") if factor == 1.0 => Ok(RopeScaling::None),
        None | Some("linear") => Ok(RopeScaling::Linear(factor)),
        Some("yarn") => yarn(p, factor),
        Some(other) => {
            let shown: String = other.escape_debug().take(64).collect();
            Err(p.bad("rope.scaling.type", format!("'{shown}'"), "one of none, linear, yarn"))
        }
    }
}

fn yarn(p: &Params, factor: f64) -> Result<RopeScaling> {
    if factor < 1.0 {
        return Err(p.bad("rope.scaling.factor", factor, "at least 1 for yarn"));
    }
    let limits = 1..=u32::MAX as usize;
    let original = match p.optional_count("rope.scaling.original_context_length", limits.clone())? {
        Some(original) => original,
        None => p.count("context_length", limits)?,
    };
    let attention_factor = p.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
    Ok(RopeScaling::Yarn {
        factor,
        original_context: original as f64,
        attention_factor: f64::from(attention_factor),
    })
}

/// The network under `ffn_gate`, `ffn_up` and `ffn_down`.
pub(super) fn dense(p: &Params, layer: usize, activation: Activation) -> Result<Operation> {
    let outer = p.embedding_length()?;
    let width = feed_forward_length(p, layer)?;
    Ok(Operation::Dense(Box::new(Dense {
        width,
        activation,
        gate: p.linear(&block(layer, "ffn_gate"), outer, width)?,
        up: p.linear(&block(layer, "ffn_up"), outer, width)?,
        down: p.linear(&block(layer, "ffn_down"), width, outer)?,
    })))
}

pub(super) fn feed_forward_length(p: &Params, layer: usize) -> Result<usize> {
    let width = p.layer_count("feed_forward_length", layer, 1..=MAX_WIDTH)?;
    p.required("feed_forward_length", width)
}

/// The number of experts that the file claims, if any.
pub(super) fn expert_count(p: &Params) -> Result<Option<usize>> {
    p.optional_count("expert_count", 0..=MAX_EXPERTS)
        .map(|count| count.filter(|&count| count > 0))
}

/// A mixture of `experts` SwiGLU networks of inner width `width`, softmax gating, renormalised.
pub(super) fn moe(p: &Params, layer: usize, experts: usize, width: usize) -> Result<Operation> {
    let outer = p.embedding_length()?;
    let used = p.layer_count("expert_used_count", layer, 1..=experts)?;
    let [gate, up] = gate_and_up(p, layer, outer, width, experts)?;
    Ok(Operation::Moe(Box::new(Moe {
        experts,
        used: p.required("expert_used_count", used)?,
        width,
        activation: Activation::Silu,
        gating: Gating::Softmax,
        renormalise: true,
        weight_scale: 1.0,
        router: p.linear(&block(layer, "ffn_gate_inp"), outer, experts)?,
        gate,
        up,
        down: p.stack(&block(layer, "ffn_down_exps"), width, outer, experts)?,
        shared: None,
    })))
}

/// The first two matrices of every expert, from stacks of their own or from a fused one (gate rows first).
fn gate_and_up(p: &Params, layer: usize, outer: usize, width: usize, experts: usize) -> Result<[Linear; 2]> {
    if let Some(fused) = p.optional_stack(&block(layer, "ffn_gate_up_exps"), outer, 2 * width, experts)? {
        return Ok([fused.rows(0, width), fused.rows(width, width)]);
    }
    let stack = |name| p.stack(&block(layer, name), outer, width, experts);
    Ok([stack("ffn_gate_exps")?, stack("ffn_up_exps")?])
}
