//! What a model costs: bytes held, read per token, and cached per token.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use super::spec::{Attention, Dense, ModelSpec, Moe, Operation, Part};
use super::tensors::{Linear, Vector};

/// The type of cached keys and values, as `--kv-type` takes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KvType {
    /// 4 bytes a value: only the CPU engine has it.
    F32,
    /// 2 bytes a value, 11 bits of precision.
    #[default]
    F16,
    /// 2 bytes a value, 8 bits of precision and the range of f32.
    Bf16,
    /// 34 bytes for 32 dims of a head: 8 bits a value and a scale.
    Q8_0,
}

impl KvType {
    /// All types.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::Q8_0];

    /// Bytes of `values` values of one head.
    pub const fn bytes(self, values: usize) -> usize {
        match self {
            KvType::F32 => 4 * values,
            KvType::F16 | KvType::Bf16 => 2 * values,
            KvType::Q8_0 => values.div_ceil(32) * 34,
        }
    }

    /// Whether heads of `head_dim` dims can be stored.
    pub const fn takes(self, head_dim: usize) -> bool {
        !matches!(self, KvType::Q8_0) || head_dim.is_multiple_of(32)
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            KvType::F32 => "f32",
            KvType::F16 => "f16",
            KvType::Bf16 => "bf16",
            KvType::Q8_0 => "q8_0",
        }
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| "expected f16, bf16, q8_0, or f32 on the CPU".to_owned())
    }
}

impl Display for KvType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
        let cached = self
            .attentions()
            .map(|a| 2 * (a.kv_heads * kv.bytes(a.head_dim)) as u64);
        Memory {
            weights,
            read_per_token: read,
            kv_per_token: cached.sum(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_parses_and_prints() {
        for kind in KvType::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("q4_0".parse::<KvType>().unwrap_err().contains("bf16"));
    }

    #[test]
    fn blocks_are_counted_whole() {
        assert_eq!(KvType::ALL.map(|kind| kind.bytes(64)), [256, 128, 128, 68]);
        assert!(KvType::Q8_0.takes(96) && !KvType::Q8_0.takes(80) && KvType::Bf16.takes(80));
    }
}
