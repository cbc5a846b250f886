//! Llama 1 to 3 and what is built alike (Mistral, Mixtral, SmolLM): interleaved rotation, whose
//! frequencies Llama 3.1 and later divide by `rope_freqs`; SwiGLU, or experts of that width.

use super::super::error::Result;
use super::super::params::Params;
use super::super::rope::{Rope, RopeLayout};
use super::super::spec::{Activation, Attention, ModelSpec};
use super::parts;

pub(super) fn describe(p: &Params) -> Result<ModelSpec> {
    let experts = parts::expert_count(p)?;
    let frame = parts::frame(p)?;
    let layers = parts::layers(p, |layer| {
        let attention = with_factors(p, parts::attention(p, layer, RopeLayout::Interleaved)?)?;
        let feed_forward = match experts {
            Some(experts) => parts::moe(p, layer, experts, parts::feed_forward_length(p, layer)?)?,
            None => parts::dense(p, layer, Activation::Silu)?,
        };
        parts::usual_layer(p, layer, attention, feed_forward)
    })?;
    Ok(ModelSpec { layers, ..frame })
}

fn with_factors(p: &Params, attention: Attention) -> Result<Attention> {
    let factors = p.positive_values("rope_freqs.weight", attention.rope.dims / 2)?;
    let rope = Rope {
        factors: factors.unwrap_or_default(),
        ..attention.rope
    };
    Ok(Attention { rope, ..attention })
}
