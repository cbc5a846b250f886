//! Qwen2 and 2.5: rotation by halves, SwiGLU; its biases on q, k and v come with the tensors.

use super::super::error::Result;
use super::super::params::Params;
use super::super::rope::RopeLayout;
use super::super::spec::{Activation, ModelSpec};
use super::parts;

pub(super) fn describe(p: &Params) -> Result<ModelSpec> {
    let frame = parts::frame(p)?;
    let layers = parts::layers(p, |layer| {
        let attention = parts::attention(p, layer, RopeLayout::Halves)?;
        parts::usual_layer(p, layer, attention, parts::dense(p, layer, Activation::Silu)?)
    })?;
    Ok(ModelSpec { layers, ..frame })
}
