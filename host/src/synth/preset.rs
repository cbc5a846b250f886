//! The models that can be imitated, as data.

use super::SynthError;

/// Experts of a layer.
#[derive(Clone, Debug)]
pub struct Experts {
    /// Experts per layer.
    pub count: u32,
    /// Experts used per token.
    pub used: u32,
    /// Inner size of an expert.
    pub width: u32,
}

/// What a layer has beyond projections and two norms.
#[derive(Clone, Copy, Default, Debug)]
pub struct Parts {
    /// Norms on query and key, per head.
    pub qk_norm: bool,
    /// Biases on query, key and value.
    pub qkv_bias: bool,
    /// Norms after attention and after the feed-forward part.
    pub post_norms: bool,
    /// The embedding is multiplied by the root of its width when it is read.
    pub scaled_embedding: bool,
    /// Sliding window in tokens (0: none).
    pub sliding_window: u32,
}

/// Shapes and hyper-parameters of a model.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// `general.architecture`.
    pub arch: &'static str,
    /// Number of layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub width: u32,
    /// Query heads.
    pub heads: u32,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Size of a head.
    pub head_dim: u32,
    /// Inner size of the dense feed-forward part (only a key where there are experts).
    pub ffn: u32,
    /// Experts in place of the dense feed-forward part.
    pub experts: Option<Experts>,
    /// Rows of the embedding.
    pub vocab: u32,
    /// Id of the first of three special tokens, where the vocabulary is made up.
    pub specials_at: u32,
    /// Longest context.
    pub context: u32,
    /// Base of the rotary embedding.
    pub rope_base: f32,
    /// Epsilon of the norms.
    pub eps: f32,
    /// The output matrix is the embedding.
    pub tied: bool,
    /// What else a layer has.
    pub parts: Parts,
}

/// Query and key norms only.
const QK_NORM: Parts = Parts {
    qk_norm: true,
    qkv_bias: false,
    post_norms: false,
    scaled_embedding: false,
    sliding_window: 0,
};

/// Nothing beyond the common parts.
const PLAIN: Parts = Parts {
    qk_norm: false,
    ..QK_NORM
};

/// Qwen3-30B-A3B.
const QWEN3_30B_A3B: Preset = Preset {
    name: "qwen3-30b-a3b",
    arch: "qwen3moe",
    layers: 48,
    width: 2048,
    heads: 32,
    kv_heads: 4,
    head_dim: 128,
    ffn: 6144,
    experts: Some(Experts {
        count: 128,
        used: 8,
        width: 768,
    }),
    vocab: 151_936,
    specials_at: 151_643,
    context: 40_960,
    rope_base: 1e6,
    eps: 1e-6,
    tied: false,
    parts: QK_NORM,
};

/// Qwen3-0.6B.
const QWEN3_06B: Preset = Preset {
    name: "qwen3-0.6b",
    arch: "qwen3",
    layers: 28,
    width: 1024,
    heads: 16,
    kv_heads: 8,
    ffn: 3072,
    experts: None,
    tied: true,
    ..QWEN3_30B_A3B
};

/// A few megabytes with every part of Qwen3-MoE.
const SMALL_QWEN3MOE: Preset = Preset {
    name: "small-qwen3moe",
    layers: 2,
    width: 256,
    heads: 4,
    kv_heads: 2,
    ffn: 768,
    experts: Some(Experts {
        count: 16,
        used: 4,
        width: 256,
    }),
    vocab: 4096,
    specials_at: 4093,
    ..QWEN3_30B_A3B
};

/// The same, dense.
const SMALL_QWEN3: Preset = Preset {
    name: "small-qwen3",
    arch: "qwen3",
    ffn: 512,
    experts: None,
    tied: true,
    ..SMALL_QWEN3MOE
};

/// All presets.
static PRESETS: [Preset; 12] = [
    QWEN3_30B_A3B,
    Preset {
        name: "qwen3-coder-30b-a3b",
        ffn: 5472,
        context: 262_144,
        rope_base: 1e7,
        ..QWEN3_30B_A3B
    },
    Preset {
        name: "qwen3-235b-a22b",
        layers: 94,
        width: 4096,
        heads: 64,
        ffn: 12_288,
        experts: Some(Experts {
            count: 128,
            used: 8,
            width: 1536,
        }),
        ..QWEN3_30B_A3B
    },
    QWEN3_06B,
    Preset {
        name: "qwen2.5-0.5b",
        arch: "qwen2",
        layers: 24,
        width: 896,
        heads: 14,
        kv_heads: 2,
        head_dim: 64,
        ffn: 4864,
        context: 32_768,
        parts: Parts {
            qkv_bias: true,
            ..PLAIN
        },
        ..QWEN3_06B
    },
    Preset {
        name: "smollm2-135m",
        arch: "llama",
        layers: 30,
        width: 576,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        ffn: 1536,
        vocab: 49_152,
        specials_at: 49_149,
        context: 8192,
        rope_base: 1e5,
        eps: 1e-5,
        parts: PLAIN,
        ..QWEN3_06B
    },
    Preset {
        name: "gemma-3-270m",
        arch: "gemma3",
        layers: 18,
        width: 640,
        heads: 4,
        kv_heads: 1,
        head_dim: 256,
        ffn: 2048,
        vocab: 262_144,
        specials_at: 262_141,
        context: 32_768,
        parts: Parts {
            post_norms: true,
            scaled_embedding: true,
            sliding_window: 512,
            ..QK_NORM
        },
        ..QWEN3_06B
    },
    SMALL_QWEN3MOE,
    SMALL_QWEN3,
    Preset {
        name: "small-qwen2",
        arch: "qwen2",
        head_dim: 64,
        parts: Parts {
            qkv_bias: true,
            ..PLAIN
        },
        ..SMALL_QWEN3
    },
    Preset {
        name: "small-llama",
        arch: "llama",
        head_dim: 64,
        rope_base: 1e4,
        eps: 1e-5,
        tied: false,
        parts: PLAIN,
        ..SMALL_QWEN3
    },
    Preset {
        name: "small-gemma3",
        arch: "gemma3",
        layers: 6,
        width: 320,
        parts: Parts {
            post_norms: true,
            scaled_embedding: true,
            sliding_window: 128,
            ..QK_NORM
        },
        ..SMALL_QWEN3
    },
];

impl Preset {
    /// Every preset.
    pub fn all() -> &'static [Preset] {
        &PRESETS
    }

    /// The preset of this name.
    ///
    /// # Errors
    /// There is none; the message lists them.
    pub fn find(name: &str) -> Result<&'static Preset, SynthError> {
        let found = PRESETS.iter().find(|preset| preset.name == name);
        found.ok_or_else(|| SynthError::UnknownPreset {
            name: name.to_owned(),
            known: PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Width of all query heads together.
    pub fn query_width(&self) -> u64 {
        u64::from(self.heads) * u64::from(self.head_dim)
    }

    /// Width of all key (or value) heads together.
    pub fn kv_width(&self) -> u64 {
        u64::from(self.kv_heads) * u64::from(self.head_dim)
    }
}
