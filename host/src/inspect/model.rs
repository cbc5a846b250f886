//! What a model costs to run.

use crate::generate::stats::bytes;
use crate::model::{KvType, ModelSpec, Moe, Operation};
use serde::Serialize;
use std::fmt::{Display, Formatter, Result};

/// The model that a file holds, in the numbers that decide how fast it can be and where it fits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelReport {
    /// `general.architecture`.
    pub architecture: String,
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub embedding_length: usize,
    /// Number of tokens known.
    pub vocab_size: usize,
    /// Tokens that the model was made for.
    pub context_length: usize,
    /// Experts of a mixture and how many of them a token uses; none for dense models.
    pub experts: Option<Experts>,
    /// Bytes of all weights that the model uses.
    pub weight_bytes: u64,
    /// Bytes of weights read to compute one token.
    pub read_per_token_bytes: u64,
    /// Type of the key/value cache.
    pub kv_type: &'static str,
    /// Bytes that a token adds to the key/value cache.
    pub kv_per_token_bytes: u64,
    /// Bytes of weights and of a cache for the whole context.
    pub full_context_bytes: u64,
}

/// A mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Experts {
    /// Experts in a layer.
    pub count: usize,
    /// Experts that a token uses in a layer.
    pub used: usize,
}

impl ModelReport {
    /// The numbers of a described model with a cache of type `kv`.
    pub fn new(spec: &ModelSpec, kv: KvType) -> Self {
        let memory = spec.memory(kv);
        Self {
            architecture: spec.architecture.clone(),
            layers: spec.layers.len(),
            embedding_length: spec.embedding_length,
            vocab_size: spec.vocab_size,
            context_length: spec.context_length,
            experts: mixtures(spec).next().map(|moe| Experts {
                count: moe.experts,
                used: moe.used,
            }),
            weight_bytes: memory.weights,
            read_per_token_bytes: memory.read_per_token,
            kv_type: kv.name(),
            kv_per_token_bytes: memory.kv_per_token,
            full_context_bytes: memory.weights + memory.kv_per_token * spec.context_length as u64,
        }
    }
}

fn mixtures(spec: &ModelSpec) -> impl Iterator<Item = &Moe> {
    spec.layers
        .iter()
        .flat_map(|layer| &layer.parts)
        .filter_map(|part| match &part.operation {
            Operation::Moe(moe) => Some(moe.as_ref()),
            _ => None,
        })
}

impl Display for ModelReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let experts = self
            .experts
            .map(|Experts { count, used }| format!(", {used} of {count} experts per token"));
        let experts = experts.unwrap_or_default();
        let Self {
            architecture,
            layers,
            embedding_length,
            vocab_size,
            context_length,
            ..
        } = self;
        writeln!(
            f,
            "  {architecture}, {layers} layers of width {embedding_length}{experts}, {vocab_size} tokens"
        )?;
        writeln!(
            f,
            "  weights {}, {} of them read per token",
            bytes(self.weight_bytes),
            bytes(self.read_per_token_bytes)
        )?;
        writeln!(
            f,
            "  key/value cache ({}) {} per token",
            self.kv_type,
            bytes(self.kv_per_token_bytes)
        )?;
        writeln!(
            f,
            "  {} with the whole context of {context_length} tokens",
            bytes(self.full_context_bytes)
        )
    }
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests {
    use super::*;
    use sparkinfer_gguf::Gguf;

    #[test]
    fn the_bundled_model() {
        let gguf = Gguf::from_bytes(crate::bundled::model().unwrap()).unwrap();
        let report = ModelReport::new(&ModelSpec::from_gguf(&gguf).unwrap(), KvType::F16);
        assert_eq!(report.experts, Some(Experts { count: 16, used: 4 }));
        // 4 layers, keys and values, 2 heads of 128 values of 2 bytes.
        assert_eq!(report.kv_per_token_bytes, 4 * 2 * 2 * 128 * 2);
        assert!(report.to_string().contains("key/value cache (f16) "), "{report}");
        let small = ModelReport::new(&ModelSpec::from_gguf(&gguf).unwrap(), KvType::Q8_0);
        assert!(small.to_string().contains("key/value cache (q8_0) "), "{small}");
        assert!(report.read_per_token_bytes < report.weight_bytes / 2);
        assert_eq!(
            report.full_context_bytes,
            report.weight_bytes + 2048 * report.kv_per_token_bytes
        );
    }
}
