//! Gemma 3: scaled embedding, norms before and after each operation, head norms, GeGLU; most layers
//! see a sliding window only and rotate with a base of their own.

use super::super::error::Result;
use super::super::params::Params;
use super::super::rope::{Rope, RopeLayout, RopeScaling};
use super::super::spec::{Activation, Attention, Embedding, ModelSpec, Operation, Part};
use super::parts;

/// The one size (27B) whose queries are scaled by `1/√(width / heads)` instead of `1/√head_dim`; files do
/// not say so, its number of layers does.
const LAYERS_OF_27B: usize = 62;

/// Every so many layers one sees everything, where the file does not say which.
const DEFAULT_PERIOD: usize = 6;

pub(super) fn describe(p: &Params) -> Result<ModelSpec> {
    let frame = parts::frame(p)?;
    let width = frame.embedding_length;
    let window = p.optional_count("attention.sliding_window", 1..=u32::MAX as usize)?;
    let local = local_layers(p)?;
    let layers = parts::layers(p, |layer| {
        let attention = attention(p, layer, width)?;
        let attention = match window {
            Some(window) if local[layer] => local_attention(p, attention, window)?,
            _ => attention,
        };
        Ok(vec![
            sandwich(
                p,
                layer,
                ["attn_norm", "post_attention_norm"],
                Operation::Attention(Box::new(attention)),
            )?,
            sandwich(
                p,
                layer,
                ["ffn_norm", "post_ffw_norm"],
                parts::dense(p, layer, Activation::GeluTanh)?,
            )?,
        ])
    })?;
    Ok(ModelSpec {
        layers,
        embedding: Embedding {
            scale: (width as f32).sqrt(),
            ..frame.embedding
        },
        logit_softcap: p.positive_or_unset("final_logit_softcapping")?,
        ..frame
    })
}

fn attention(p: &Params, layer: usize, width: usize) -> Result<Attention> {
    let attention = parts::attention_with_head_norms(p, layer, RopeLayout::Halves)?;
    let scale = match p.block_count()? {
        LAYERS_OF_27B => 1.0 / (width as f32 / attention.heads as f32).sqrt(),
        _ => attention.scale,
    };
    Ok(Attention { scale, ..attention })
}

/// A layer with a window: its own base, and no stretch of the positions.
fn local_attention(p: &Params, attention: Attention, window: usize) -> Result<Attention> {
    let base = parts::rope_base(p, "rope.freq_base_swa")?.unwrap_or(10_000.0);
    let rope = Rope {
        base,
        scaling: RopeScaling::None,
        ..attention.rope
    };
    Ok(Attention {
        rope,
        window: Some(window),
        ..attention
    })
}

/// Which layers have a window: a flag per layer, or all but each `period`-th.
fn local_layers(p: &Params) -> Result<Vec<bool>> {
    const KEY: &str = "attention.sliding_window_pattern";
    if let Some(flags) = p.layer_flags(KEY)? {
        return Ok(flags);
    }
    let period = p.optional_count(KEY, 1..=u32::MAX as usize)?.unwrap_or(DEFAULT_PERIOD);
    Ok((0..p.block_count()?).map(|layer| layer % period < period - 1).collect())
}

fn sandwich(p: &Params, layer: usize, norms: [&str; 2], operation: Operation) -> Result<Part> {
    let part = parts::part(p, layer, norms[0], operation)?;
    Ok(Part {
        post_norm: Some(parts::norm(p, layer, norms[1])?),
        ..part
    })
}
