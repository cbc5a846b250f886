//! What a model costs: bytes held, read per token, and cached per token.

use super::spec::{Attention, Dense, ModelSpec, Moe, Operation, Part};
use super::tensors::{Linear, Vector};

/// The type of cached keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvType {
    /// 4 bytes a value.
    F32,
    /// 2 bytes a value.
    F16,
}

impl KvType {
    /// Bytes of a value.
    pub const fn bytes(self) -> usize {
        match self {
            KvType::F32 => 4,
            KvType::F16 => 2,
        }
    }
}

/// Bytes, by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All weights that the model uses.
    pub weights: u64,
    /// Weights read to compute one token at batch size 1.
    pub read_per_token: u64,
    /// Added to the key/value cache by each token, if every layer keeps all of them.
    pub kv_per_token: u64,
}

impl ModelSpec {
    /// The model's bytes with a cache of type `kv`.
    pub fn memory(&self, kv: KvType) -> Memory {
        let head = self.output.bytes() + self.output_norm.bytes();
        let table = self.embedding.table.matrix.bytes();
        let (mut weights, mut read) = (head, head + self.embedding.table.matrix.row_bytes() as u64);
        weights += if self.tied() { 0 } else { table };
        for part in self.layers.iter().flat_map(|layer| &layer.parts) {
            let cost = part_cost(part);
            weights += cost.0;
            read += cost.1;
        }
        let values: u64 = self.attentions().map(|a| 2 * (a.kv_heads * a.head_dim) as u64).sum();
        Memory {
            weights,
            read_per_token: read,
            kv_per_token: values * kv.bytes() as u64,
        }
    }
}

/// Bytes held and bytes read per token.
fn part_cost(part: &Part) -> (u64, u64) {
    let norms = part.norm.bytes() + optional(&part.post_norm);
    let (held, read) = match &part.operation {
        Operation::Attention(attention) => both(attention_bytes(attention)),
        Operation::Dense(dense) => both(dense_bytes(dense)),
        Operation::Moe(moe) => moe_cost(moe),
    };
    (norms + held, norms + read)
}

fn both(bytes: u64) -> (u64, u64) {
    (bytes, bytes)
}

fn attention_bytes(a: &Attention) -> u64 {
    let matrices: u64 = [&a.q, &a.k, &a.v, &a.output].map(Linear::bytes).iter().sum();
    matrices + optional(&a.q_norm) + optional(&a.k_norm)
}

fn dense_bytes(dense: &Dense) -> u64 {
    [&dense.gate, &dense.up, &dense.down].map(Linear::bytes).iter().sum()
}

fn moe_cost(moe: &Moe) -> (u64, u64) {
    let expert: u64 = [&moe.gate, &moe.up, &moe.down].map(Linear::bytes).iter().sum();
    let shared = moe.shared.as_ref().map_or(0, |shared| {
        dense_bytes(&shared.network) + shared.gate.as_ref().map_or(0, Linear::bytes)
    });
    let always = moe.router.bytes() + shared;
    (always + expert * moe.experts as u64, always + expert * moe.used as u64)
}

fn optional(vector: &Option<Vector>) -> u64 {
    vector.as_ref().map_or(0, Vector::bytes)
}
