//! The memory limit: a token cannot be made faster than what it must read can be read.

use serde::Serialize;

use crate::model::{KvType, ModelSpec};

/// What a token must read, and how long that takes at least.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Limit {
    /// Bytes of weights: the tensors of the file that a token uses, of the experts as many as are chosen.
    pub weight_bytes: u64,
    /// Bytes of cached keys and values.
    pub kv_bytes: u64,
    /// Milliseconds to read them at the measured bandwidth.
    pub streaming_ms: f64,
    /// Tokens a second at that time.
    pub tokens_per_second: f64,
}

impl Limit {
    /// For a token behind `cached` others, at `bandwidth` bytes a second.
    pub fn new(spec: &ModelSpec, kv: KvType, cached: usize, bandwidth: f64) -> Self {
        let weight_bytes = spec.memory(kv).read_per_token;
        let kv_bytes = kv_bytes(spec, kv, cached);
        let seconds = (weight_bytes + kv_bytes) as f64 / bandwidth;
        Self {
            weight_bytes,
            kv_bytes,
            streaming_ms: 1e3 * seconds,
            tokens_per_second: 1.0 / seconds,
        }
    }
}

/// Bytes of keys and values that a token behind `cached` others reads; a layer with a window reads no more than it.
pub fn kv_bytes(spec: &ModelSpec, kv: KvType, cached: usize) -> u64 {
    let layers = spec.attentions().map(|attention| {
        let seen = attention.window.map_or(cached, |window| cached.min(window));
        (2 * attention.kv_heads * kv.bytes(attention.head_dim) * seen) as u64
    });
    layers.sum()
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests {
    use super::*;
    use crate::load::Model;

    #[test]
    fn weights_and_cache_are_counted() {
        let mut spec = Model::open(None).unwrap().spec;
        let memory = spec.memory(KvType::F16);
        let limit = Limit::new(&spec, KvType::F16, 100, 1e9);
        assert_eq!(limit.kv_bytes, 100 * memory.kv_per_token);
        let bytes = (memory.read_per_token + limit.kv_bytes) as f64;
        assert!((limit.streaming_ms - bytes / 1e6).abs() < 1e-9);
        assert!((limit.tokens_per_second * bytes - 1e9).abs() < 1.0);
        for part in spec.layers.iter_mut().flat_map(|layer| &mut layer.parts) {
            if let crate::model::Operation::Attention(attention) = &mut part.operation {
                attention.window = Some(10);
            }
        }
        assert_eq!(kv_bytes(&spec, KvType::F16, 100), 10 * memory.kv_per_token);
    }
}
