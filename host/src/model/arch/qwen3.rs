//! Qwen3: head norms, rotation by halves, SwiGLU.

use super::super::error::Result;
use super::super::params::Params;
use super::super::rope::RopeLayout;
use super::super::spec::{Activation, ModelSpec};
use super::parts;

pub(super) fn describe(p: &Params) -> Result<ModelSpec> {
    let frame = parts::frame(p)?;
    let layers = parts::layers(p, |layer| {
        let attention = parts::attention_with_head_norms(p, layer, RopeLayout::Halves)?;
        parts::usual_layer(p, layer, attention, parts::dense(p, layer, Activation::Silu)?)
    })?;
    Ok(ModelSpec { layers, ..frame })
}
