//! The list of tensors of a preset, with the size of their values.
//!
//! A matrix of `n` columns has values of deviation `gain / sqrt(n)`, so that a normed input gives outputs of deviation
//! `gain`. The two matrices that write to the residual stream are divided by the root of the number of writes besides.

use super::Preset;

/// Gain of the output matrix: logits spread enough that the best token is clear.
const OUTPUT_GAIN: f32 = 4.0;
/// Gain of an embedding that is also the output matrix: small, or every token would be followed by itself. The output
/// norm makes up for it.
const TIED_GAIN: f32 = 0.5;
/// Gain of the router: experts get clearly different weights.
const ROUTER_GAIN: f32 = 2.0;
/// `silu(a) b` of two numbers of deviation 1 has about this deviation.
const GATED_DEVIATION: f32 = 0.6;

/// Mean and deviation of a tensor's values. Only plain numbers have a mean other than 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    pub(super) mean: f32,
    pub(super) deviation: f32,
}

/// What a tensor is, as far as its type depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Norms, biases and the router: always F32.
    Exact,
    Embedding,
    Output,
    Key,
    Value,
    AttentionOutput,
    Down,
    /// Every other matrix.
    Matrix,
}

/// A tensor to be made.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    pub(super) role: Role,
    /// The layer, 0 for tensors outside of layers.
    pub(super) layer: u32,
    pub(super) values: Values,
}

impl Planned {
    pub(super) fn elements(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }
}

/// Every tensor of the model.
pub(super) fn plan(preset: &Preset) -> Vec<Planned> {
    let mut list = List {
        preset,
        layer: 0,
        tensors: Vec::new(),
    };
    list.globals();
    for layer in 0..preset.layers {
        list.layer = layer;
        list.attention();
        match preset.experts.is_some() {
            true => list.experts(),
            false => list.dense(),
        }
    }
    list.tensors
}

/// The tensors so far.
struct List<'a> {
    preset: &'a Preset,
    layer: u32,
    tensors: Vec<Planned>,
}

impl List<'_> {
    fn add(&mut self, name: String, shape: &[u64], role: Role, values: Values) {
        self.tensors.push(Planned {
            name,
            shape: shape.to_vec(),
            role,
            layer: self.layer,
            values,
        });
    }

    /// A matrix of this layer whose outputs have deviation `gain`.
    fn matrix(&mut self, name: &str, shape: &[u64], role: Role, gain: f32) {
        let values = Values {
            mean: 0.0,
            deviation: gain / (shape[0] as f32).sqrt(),
        };
        self.add(format!("blk.{}.{name}.weight", self.layer), shape, role, values);
    }

    /// A norm of this layer.
    fn norm(&mut self, name: &str, len: u32) {
        self.add(
            format!("blk.{}.{name}.weight", self.layer),
            &[len.into()],
            Role::Exact,
            NEAR_ONE,
        );
    }

    /// Gain of a matrix that writes to the residual stream.
    fn write_gain(&self) -> f32 {
        1.0 / (2.0 * self.preset.layers as f32).sqrt()
    }

    fn globals(&mut self) {
        let preset = self.preset;
        let (width, vocab) = (u64::from(preset.width), u64::from(preset.vocab));
        let root = (width as f32).sqrt();
        let deviation = match (preset.tied, preset.parts.scaled_embedding) {
            (true, _) => TIED_GAIN / root,
            (false, true) => 1.0 / root,
            (false, false) => 1.0,
        };
        let centred = |deviation| Values { mean: 0.0, deviation };
        self.add(
            "token_embd.weight".into(),
            &[width, vocab],
            Role::Embedding,
            centred(deviation),
        );
        let norm = if preset.tied { OUTPUT_GAIN / TIED_GAIN } else { 1.0 };
        let norm = Values {
            mean: norm,
            deviation: 0.1 * norm,
        };
        self.add("output_norm.weight".into(), &[width], Role::Exact, norm);
        if !preset.tied {
            self.add(
                "output.weight".into(),
                &[width, vocab],
                Role::Output,
                centred(OUTPUT_GAIN / root),
            );
        }
    }

    fn attention(&mut self) {
        let preset = self.preset;
        let (width, query, kv) = (u64::from(preset.width), preset.query_width(), preset.kv_width());
        self.norm("attn_norm", preset.width);
        self.matrix("attn_q", &[width, query], Role::Matrix, 1.0);
        self.matrix("attn_k", &[width, kv], Role::Key, 1.0);
        self.matrix("attn_v", &[width, kv], Role::Value, 1.0);
        self.matrix("attn_output", &[query, width], Role::AttentionOutput, self.write_gain());
        if preset.parts.qkv_bias {
            for (name, len) in [("attn_q", query), ("attn_k", kv), ("attn_v", kv)] {
                let values = Values {
                    mean: 0.0,
                    deviation: 0.1,
                };
                self.add(format!("blk.{}.{name}.bias", self.layer), &[len], Role::Exact, values);
            }
        }
        if preset.parts.qk_norm {
            self.norm("attn_q_norm", preset.head_dim);
            self.norm("attn_k_norm", preset.head_dim);
        }
        if preset.parts.post_norms {
            self.norm("post_attention_norm", preset.width);
        }
        self.norm("ffn_norm", preset.width);
        if preset.parts.post_norms {
            self.norm("post_ffw_norm", preset.width);
        }
    }

    fn dense(&mut self) {
        let (width, inner) = (u64::from(self.preset.width), u64::from(self.preset.ffn));
        self.feed_forward("", &[width, inner], &[inner, width]);
    }

    fn experts(&mut self) {
        let Some(experts) = &self.preset.experts else { return };
        let (width, inner, count) = (
            u64::from(self.preset.width),
            u64::from(experts.width),
            u64::from(experts.count),
        );
        self.matrix("ffn_gate_inp", &[width, count], Role::Exact, ROUTER_GAIN);
        self.feed_forward("_exps", &[width, inner, count], &[inner, width, count]);
    }

    fn feed_forward(&mut self, suffix: &str, up: &[u64], down: &[u64]) {
        let gain = self.write_gain() / GATED_DEVIATION;
        self.matrix(&format!("ffn_gate{suffix}"), up, Role::Matrix, 1.0);
        self.matrix(&format!("ffn_up{suffix}"), up, Role::Matrix, 1.0);
        self.matrix(&format!("ffn_down{suffix}"), down, Role::Down, gain);
    }
}

/// Weights of a norm.
const NEAR_ONE: Values = Values {
    mean: 1.0,
    deviation: 0.1,
};
