//! Qwen3-MoE: head norms, rotation by halves, a mixture of experts in every layer, no biases.

use super::super::error::Result;
use super::super::params::{MAX_WIDTH, Params};
use super::super::rope::RopeLayout;
use super::super::spec::ModelSpec;
use super::parts;

pub(super) fn describe(p: &Params) -> Result<ModelSpec> {
    let experts = parts::expert_count(p)?;
    let experts = p.required("expert_count", experts)?;
    let frame = parts::frame(p)?;
    let layers = parts::layers(p, |layer| {
        let attention = parts::attention_with_head_norms(p, layer, RopeLayout::Halves)?;
        parts::usual_layer(
            p,
            layer,
            attention,
            parts::moe(p, layer, experts, expert_width(p, layer)?)?,
        )
    })?;
    Ok(ModelSpec { layers, ..frame })
}

/// Inner width of an expert; older files give only the width of all that are used together.
fn expert_width(p: &Params, layer: usize) -> Result<usize> {
    if let Some(width) = p.layer_count("expert_feed_forward_length", layer, 1..=MAX_WIDTH)? {
        return Ok(width);
    }
    let used = p.layer_count("expert_used_count", layer, 1..=MAX_WIDTH)?;
    Ok(parts::feed_forward_length(p, layer)? / p.required("expert_used_count", used)?)
}
