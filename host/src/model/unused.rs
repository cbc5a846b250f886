//! Tensors of a layer that a model's description leaves out.

use std::collections::HashSet;

use sparkinfer_gguf::Gguf;

use super::spec::{Attention, Dense, ModelSpec, Moe, Operation, Part};
use super::tensors::{Linear, Vector};

impl ModelSpec {
    /// The tensors of layers (`blk.N.…`) in `gguf` that this model does not use, in the file's order: layers behind the
    /// last one, or parts that its architecture does not have. Where a model was described wrongly, they show it.
    pub fn unused_tensors<'g>(&self, gguf: &'g Gguf) -> Vec<&'g str> {
        let mut used = Used(HashSet::new());
        let parts = self.layers.iter().flat_map(|layer| &layer.parts);
        parts.for_each(|part| used.part(part));
        gguf.tensors()
            .map(|tensor| tensor.name)
            .filter(|name| name.starts_with("blk.") && !name.ends_with(".rope_freqs.weight") && !used.0.contains(name))
            .collect()
    }
}

/// Names of the tensors that are used.
struct Used<'s>(HashSet<&'s str>);

impl<'s> Used<'s> {
    fn part(&mut self, part: &'s Part) {
        self.vectors([Some(&part.norm), part.post_norm.as_ref()]);
        match &part.operation {
            Operation::Attention(attention) => self.attention(attention),
            Operation::Dense(dense) => self.dense(dense),
            Operation::Moe(moe) => self.moe(moe),
        }
    }

    fn attention(&mut self, a: &'s Attention) {
        self.linears([&a.q, &a.k, &a.v, &a.output]);
        self.vectors([a.q_norm.as_ref(), a.k_norm.as_ref()]);
    }

    fn dense(&mut self, dense: &'s Dense) {
        self.linears([&dense.gate, &dense.up, &dense.down]);
    }

    fn moe(&mut self, moe: &'s Moe) {
        self.linears([&moe.router, &moe.gate, &moe.up, &moe.down]);
        if let Some(shared) = &moe.shared {
            self.dense(&shared.network);
            self.linears(&shared.gate);
        }
    }

    fn linears(&mut self, linears: impl IntoIterator<Item = &'s Linear>) {
        for linear in linears {
            self.0.insert(&linear.matrix.tensor);
            self.vectors([linear.scale.as_ref(), linear.bias.as_ref()]);
        }
    }

    fn vectors(&mut self, vectors: impl IntoIterator<Item = Option<&'s Vector>>) {
        let names = vectors.into_iter().flatten().map(|vector| vector.tensor.as_str());
        self.0.extend(names);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{architectures, fixture::Fixture};
    use super::*;

    #[test]
    fn sound_models_use_all_of_their_tensors() {
        for arch in architectures() {
            let gguf = Fixture::new(arch).build();
            let spec = ModelSpec::from_gguf(&gguf).unwrap();
            assert!(spec.unused_tensors(&gguf).is_empty(), "{arch}");
        }
    }

    #[test]
    fn what_is_left_over_is_named() {
        let mut fixture = Fixture::new("qwen3");
        let gguf = fixture
            .tensor("blk.0.attn_gate.weight", &[64, 64])
            .tensor("blk.2.attn_norm.weight", &[64])
            .tensor("vision.weight", &[64])
            .build();
        let spec = ModelSpec::from_gguf(&gguf).unwrap();
        assert_eq!(
            spec.unused_tensors(&gguf),
            ["blk.0.attn_gate.weight", "blk.2.attn_norm.weight"]
        );
    }
}
