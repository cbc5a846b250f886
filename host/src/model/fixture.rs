//! Small models of every architecture, made on the spot: for tests.

use std::collections::BTreeMap;

use sparkinfer_gguf::{Gguf, GgufWriter, MetaValue, TensorType};

use crate::sample::uniform;

/// Width of the residual stream.
pub(crate) const WIDTH: u64 = 64;
/// Query heads, key/value heads, width of a head.
pub(crate) const HEADS: [u64; 3] = [4, 2, 24];
/// Inner width of a network or an expert.
pub(crate) const INNER: u64 = 96;
/// Experts of the architectures that have them.
pub(crate) const EXPERTS: u64 = 4;
/// Layers.
pub(crate) const LAYERS: usize = 2;
/// Tokens.
pub(crate) const VOCAB: u64 = 40;

/// A model file about to be made: change it, then [`Fixture::build`].
pub(crate) struct Fixture {
    arch: &'static str,
    keys: BTreeMap<String, MetaValue>,
    tensors: BTreeMap<String, (TensorType, Vec<u64>)>,
}

impl Fixture {
    /// A sound model of an architecture that `arch/` knows.
    pub(crate) fn new(arch: &'static str) -> Self {
        let mut fixture = Fixture {
            arch,
            keys: BTreeMap::new(),
            tensors: BTreeMap::new(),
        };
        fixture.keys.insert("general.architecture".into(), arch.into());
        fixture
            .set("block_count", LAYERS as u32)
            .set("context_length", 128u32)
            .set("embedding_length", WIDTH as u32);
        fixture
            .set("attention.head_count", HEADS[0] as u32)
            .set("attention.head_count_kv", HEADS[1] as u32);
        fixture
            .set("attention.key_length", HEADS[2] as u32)
            .set("attention.value_length", HEADS[2] as u32);
        fixture
            .set("attention.layer_norm_rms_epsilon", 1e-5f32)
            .set("feed_forward_length", INNER as u32);
        fixture
            .tensor("token_embd.weight", &[WIDTH, VOCAB])
            .tensor("output_norm.weight", &[WIDTH]);
        (0..LAYERS).for_each(|layer| fixture.add_layer(layer));
        if arch == "qwen3moe" {
            fixture.add_experts();
        }
        if arch == "gemma3" {
            fixture
                .set("attention.sliding_window", 5u32)
                .set("attention.sliding_window_pattern", 2u32);
        }
        fixture
    }

    fn add_layer(&mut self, layer: usize) {
        let [heads, kv_heads, head_dim] = HEADS;
        let mut add = |name: &str, shape: &[u64]| {
            self.tensor(&format!("blk.{layer}.{name}.weight"), shape);
        };
        add("attn_norm", &[WIDTH]);
        add("ffn_norm", &[WIDTH]);
        add("attn_q", &[WIDTH, heads * head_dim]);
        add("attn_k", &[WIDTH, kv_heads * head_dim]);
        add("attn_v", &[WIDTH, kv_heads * head_dim]);
        add("attn_output", &[heads * head_dim, WIDTH]);
        add("ffn_gate", &[WIDTH, INNER]);
        add("ffn_up", &[WIDTH, INNER]);
        add("ffn_down", &[INNER, WIDTH]);
        let (arch, norms): (_, [(&str, u64); 4]) = (
            self.arch,
            [
                ("attn_q_norm", head_dim),
                ("attn_k_norm", head_dim),
                ("post_attention_norm", WIDTH),
                ("post_ffw_norm", WIDTH),
            ],
        );
        let count = if arch == "gemma3" {
            4
        } else if arch.starts_with("qwen3") {
            2
        } else {
            0
        };
        for (name, len) in &norms[..count] {
            self.tensor(&format!("blk.{layer}.{name}.weight"), &[*len]);
        }
    }

    /// Replaces the networks by experts.
    pub(crate) fn add_experts(&mut self) -> &mut Self {
        self.set("expert_count", EXPERTS as u32).set("expert_used_count", 2u32);
        self.set("expert_feed_forward_length", INNER as u32);
        for layer in 0..LAYERS {
            for (name, cols, rows) in [("gate", WIDTH, INNER), ("up", WIDTH, INNER), ("down", INNER, WIDTH)] {
                self.remove(&format!("blk.{layer}.ffn_{name}.weight"));
                self.tensor(&format!("blk.{layer}.ffn_{name}_exps.weight"), &[cols, rows, EXPERTS]);
            }
            self.tensor(&format!("blk.{layer}.ffn_gate_inp.weight"), &[WIDTH, EXPERTS]);
        }
        self
    }

    /// Sets a key of the architecture.
    pub(crate) fn set(&mut self, suffix: &str, value: impl Into<MetaValue>) -> &mut Self {
        self.keys.insert(format!("{}.{suffix}", self.arch), value.into());
        self
    }

    /// Sets any key.
    pub(crate) fn set_full(&mut self, key: &str, value: impl Into<MetaValue>) -> &mut Self {
        self.keys.insert(key.into(), value.into());
        self
    }

    /// Removes a key of the architecture.
    pub(crate) fn unset(&mut self, suffix: &str) -> &mut Self {
        self.keys.remove(&format!("{}.{suffix}", self.arch));
        self
    }

    /// Adds an F32 tensor, or replaces one.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[u64]) -> &mut Self {
        self.typed(name, TensorType::F32, shape)
    }

    /// Adds a tensor, or replaces one.
    pub(crate) fn typed(&mut self, name: &str, ty: TensorType, shape: &[u64]) -> &mut Self {
        self.tensors.insert(name.into(), (ty, shape.to_vec()));
        self
    }

    /// Removes a tensor.
    pub(crate) fn remove(&mut self, name: &str) -> &mut Self {
        self.tensors.remove(name);
        self
    }

    /// The file: random matrices of a fitting scale, norms and vectors near 1.
    pub(crate) fn build(&self) -> Gguf {
        self.build_with(|_, _| ())
    }

    /// As [`Fixture::build`], with `edit(name, values)` changing F32 tensors.
    pub(crate) fn build_with(&self, mut edit: impl FnMut(&str, &mut [f32])) -> Gguf {
        let mut writer = GgufWriter::new();
        self.keys.iter().for_each(|(key, value)| {
            writer.set(key, value.clone());
        });
        for (name, (ty, shape)) in &self.tensors {
            writer.tensor(name, *ty, shape).unwrap();
        }
        let tensors: Vec<_> = self.tensors.iter().collect();
        let bytes = writer.to_vec(|i, out| {
            let (name, (ty, shape)) = tensors[i];
            let count = shape.iter().product::<u64>() as usize;
            let mut values = random(name, shape[0], shape.len() > 1, count);
            edit(name, &mut values);
            let mut bytes = vec![0; ty.row_bytes(count).unwrap()];
            if *ty == TensorType::F32 {
                bytes.copy_from_slice(bytemuck::cast_slice(&values));
            }
            out.write_all(&bytes)
        });
        Gguf::from_vec("fixture.gguf", bytes.unwrap()).unwrap()
    }
}

/// Values that depend on the tensor's name alone.
fn random(name: &str, cols: u64, matrix: bool, count: usize) -> Vec<f32> {
    let seed = name
        .bytes()
        .fold(7, |seed, byte| seed * 31 % 1_000_003 + u64::from(byte));
    let scale = 3.0 / (cols as f32).sqrt();
    let value = |i| {
        if matrix {
            (uniform(seed, i) - 0.5) * scale
        } else {
            0.75 + 0.5 * uniform(seed, i)
        }
    };
    (0..count as u64).map(value).collect()
}
