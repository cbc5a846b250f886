//! Descriptions of sound and of hostile files.

use sparkinfer_gguf::{Gguf, MetaValue, TensorType};

use super::fixture::{EXPERTS, Fixture, HEADS, INNER, LAYERS, VOCAB, WIDTH};
use super::*;

fn spec(fixture: &Fixture) -> ModelSpec {
    ModelSpec::from_gguf(&fixture.build()).unwrap()
}

fn first_attention(spec: &ModelSpec) -> &Attention {
    spec.attentions().next().unwrap()
}

#[test]
#[cfg(feature = "bundled-model")]
fn bundled_model() {
    let gguf = Gguf::from_bytes(crate::bundled::model().unwrap()).unwrap();
    let spec = ModelSpec::from_gguf(&gguf).unwrap();
    assert_eq!(
        (spec.layers.len(), spec.embedding_length, spec.vocab_size),
        (4, 256, 4096)
    );
    assert!(!spec.tied());
    let attention = first_attention(&spec);
    assert_eq!((attention.heads, attention.kv_heads, attention.head_dim), (4, 2, 128));
    assert_eq!((attention.rope.dims, attention.rope.base), (128, 1e6));
    let Operation::Moe(moe) = &spec.layers[3].parts[1].operation else {
        panic!()
    };
    assert_eq!((moe.experts, moe.used, moe.width, moe.renormalise), (16, 4, 256, true));
    let memory = spec.memory(KvType::F16);
    assert_eq!(
        memory.weights,
        gguf.tensors().map(|tensor| tensor.data.len() as u64).sum::<u64>()
    );
    assert_eq!(memory.kv_per_token, 4 * 2 * 2 * 128 * 2);
    let experts: u64 = gguf
        .tensors()
        .filter(|t| t.name.contains("_exps"))
        .map(|t| t.data.len() as u64)
        .sum();
    let table = gguf.tensor("token_embd.weight").unwrap();
    let unread = experts / 16 * 12 + table.data.len() as u64 - table.row_bytes() as u64;
    assert_eq!(memory.read_per_token, memory.weights - unread);
}

#[test]
fn every_architecture_is_described() {
    for arch in architectures() {
        let spec = spec(&Fixture::new(arch));
        assert_eq!((spec.architecture.as_str(), spec.layers.len()), (arch, LAYERS));
        let attention = first_attention(&spec);
        assert_eq!(
            [attention.heads, attention.kv_heads, attention.head_dim].map(|n| n as u64),
            HEADS
        );
        assert_eq!(
            attention.q_norm.is_some(),
            arch.starts_with("qwen3") || arch == "gemma3"
        );
        assert_eq!(attention.rope.layout == RopeLayout::Interleaved, arch == "llama");
        assert!(spec.tied());
    }
}

#[test]
fn gemma3_has_windows_sandwich_norms_and_a_scaled_embedding() {
    let mut fixture = Fixture::new("gemma3");
    fixture
        .set("rope.freq_base", 1e6f32)
        .set("rope.scaling.type", "linear")
        .set("rope.scaling.factor", 8f32);
    let spec = spec(&fixture);
    assert_eq!(spec.embedding.scale, 8.0);
    let attentions: Vec<&Attention> = spec.attentions().collect();
    assert_eq!(attentions.iter().map(|a| a.window).collect::<Vec<_>>(), [Some(5), None]);
    assert_eq!(
        (attentions[0].rope.base, attentions[0].rope.scaling),
        (1e4, RopeScaling::None)
    );
    assert_eq!(
        (attentions[1].rope.base, attentions[1].rope.scaling),
        (1e6, RopeScaling::Linear(8.0))
    );
    assert!(spec.layers[0].parts.iter().all(|part| part.post_norm.is_some()));
    let flags: &[bool] = &[false, true];
    let spec = self::spec(fixture.set("attention.sliding_window_pattern", flags));
    assert_eq!(spec.attentions().map(|a| a.window).collect::<Vec<_>>(), [None, Some(5)]);
}

#[test]
fn fused_tensors_are_cut() {
    let [heads, kv_heads, head_dim] = HEADS;
    let (q, kv) = (heads * head_dim, kv_heads * head_dim);
    let mut fixture = Fixture::new("qwen3moe");
    for name in ["attn_q", "attn_k", "attn_v", "ffn_gate_exps", "ffn_up_exps"] {
        fixture.remove(&format!("blk.0.{name}.weight"));
    }
    fixture
        .tensor("blk.0.attn_qkv.weight", &[WIDTH, q + 2 * kv])
        .tensor("blk.0.attn_qkv.bias", &[q + 2 * kv]);
    fixture.tensor("blk.0.ffn_gate_up_exps.weight", &[WIDTH, 2 * INNER, EXPERTS]);
    let spec = spec(&fixture);
    let v = &first_attention(&spec).v;
    assert_eq!((v.matrix.first_row as u64, v.matrix.rows as u64), (q + kv, kv));
    assert_eq!(
        v.bias.as_ref().map(|bias| (bias.first as u64, bias.len as u64)),
        Some((q + kv, kv))
    );
    let Operation::Moe(moe) = &spec.layers[0].parts[1].operation else {
        panic!()
    };
    let up = &moe.up.matrix;
    assert_eq!(
        [up.first_row, up.rows, up.expert_rows].map(|n| n as u64),
        [INNER, INNER, 2 * INNER]
    );
}

#[test]
fn scales_biases_factors_and_experts_of_llama() {
    let mut fixture = Fixture::new("llama");
    fixture.add_experts().tensor("rope_freqs.weight", &[HEADS[2] / 2]);
    fixture
        .tensor("blk.1.ffn_up_exps.scale", &[EXPERTS])
        .tensor("blk.1.ffn_down_exps.scale", &[1]);
    fixture.tensor("blk.1.attn_output.bias", &[WIDTH]);
    let spec = spec(&fixture);
    assert_eq!(first_attention(&spec).rope.factors.len() as u64, HEADS[2] / 2);
    let Operation::Moe(moe) = &spec.layers[1].parts[1].operation else {
        panic!()
    };
    assert_eq!(moe.up.scale.as_ref().map(|scale| scale.len as u64), Some(EXPERTS));
    assert_eq!(moe.down.scale.as_ref().map(|scale| scale.len), Some(1));
    assert!(spec.attentions().nth(1).unwrap().output.bias.is_some());
}

#[test]
fn yarn_is_read() {
    let mut fixture = Fixture::new("qwen3");
    fixture
        .set("rope.scaling.type", "yarn")
        .set("rope.scaling.factor", 4f32);
    fixture.set("rope.scaling.original_context_length", 32u32);
    let expected = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 32.0,
        attention_factor: 1.0,
    };
    assert_eq!(first_attention(&spec(&fixture)).rope.scaling, expected);
    let none = spec(fixture.set("rope.scaling.type", "none"));
    assert_eq!(first_attention(&none).rope.scaling, RopeScaling::None);
}

/// A change to a sound file, and what the one-line message must say.
type Case = (&'static str, fn(&mut Fixture) -> &mut Fixture, &'static str);

const CASES: &[Case] = &[
    (
        "no layers",
        |f| f.set("block_count", 0u32),
        "'qwen3moe.block_count': is 0, but must be 1 to 512",
    ),
    (
        "too many layers",
        |f| f.set("block_count", 513u32),
        "is 513, but must be 1 to 512",
    ),
    (
        "missing layers",
        |f| f.set("block_count", 3u32),
        "tensor 'blk.2.attn_q.weight': is missing",
    ),
    (
        "no width",
        |f| f.unset("embedding_length"),
        "'qwen3moe.embedding_length': is missing",
    ),
    (
        "zero width",
        |f| f.set("embedding_length", 0u32),
        "embedding_length': is 0",
    ),
    (
        "wide",
        |f| f.set("embedding_length", u32::MAX),
        "embedding_length': is 4294967295",
    ),
    (
        "other width",
        |f| f.set("embedding_length", 32u32),
        "token_embd.weight': has shape {64, 40}, but the hyper-parameters ask for {32, 40}",
    ),
    (
        "text for a number",
        |f| f.set("embedding_length", "64"),
        "embedding_length': must be an integer",
    ),
    (
        "zero heads",
        |f| f.set("attention.head_count", 0u32),
        "head_count': is 0",
    ),
    (
        "zero kv heads",
        |f| f.set("attention.head_count_kv", 0u32),
        "head_count_kv': is 0",
    ),
    (
        "uneven heads",
        |f| f.set("attention.head_count_kv", 3u32),
        "is 3, but must be a divisor of the 4 heads",
    ),
    (
        "no heads",
        |f| f.unset("attention.head_count"),
        "head_count': is missing",
    ),
    (
        "per-layer heads",
        |f| f.set("attention.head_count", &[4u32, 4, 4][..]),
        "has 3 elements for 2 layers",
    ),
    (
        "head width",
        |f| f.set("attention.key_length", 100_000u32),
        "key_length': is 100000",
    ),
    (
        "value width",
        |f| f.set("attention.value_length", 8u32),
        "value_length': is 8, but must be the key length 24",
    ),
    (
        "odd split",
        |f| {
            f.unset("attention.key_length")
                .set("attention.head_count", 7u32)
                .set("attention.head_count_kv", 1u32)
        },
        "is 7, but must be a divisor of the width 64",
    ),
    (
        "eps zero",
        |f| f.set("attention.layer_norm_rms_epsilon", 0f32),
        "epsilon': is 0, but must be a finite number above 0",
    ),
    (
        "eps NaN",
        |f| f.set("attention.layer_norm_rms_epsilon", f32::NAN),
        "epsilon': is NaN",
    ),
    (
        "eps negative",
        |f| f.set("attention.layer_norm_rms_epsilon", -1f32),
        "epsilon': is -1",
    ),
    (
        "no eps",
        |f| f.unset("attention.layer_norm_rms_epsilon"),
        "epsilon': is missing",
    ),
    ("no context", |f| f.set("context_length", 0u32), "context_length': is 0"),
    (
        "rope odd",
        |f| f.set("rope.dimension_count", 7u32),
        "rope.dimension_count': is 7, but must be even",
    ),
    (
        "rope wide",
        |f| f.set("rope.dimension_count", 26u32),
        "rope.dimension_count': is 26, but must be 2 to 24",
    ),
    (
        "rope base",
        |f| f.set("rope.freq_base", 1f32),
        "rope.freq_base': is 1, but must be above 1",
    ),
    (
        "rope base NaN",
        |f| f.set("rope.freq_base", f32::NAN),
        "rope.freq_base': is NaN",
    ),
    (
        "rope scaling",
        |f| f.set("rope.scaling.type", "sideways"),
        "is 'sideways', but must be one of none, linear, yarn",
    ),
    (
        "rope factor",
        |f| f.set("rope.scaling.factor", -2f32),
        "rope.scaling.factor': is -2",
    ),
    (
        "yarn factor",
        |f| f.set("rope.scaling.type", "yarn").set("rope.scaling.factor", 0.5f32),
        "at least 1 for yarn",
    ),
    (
        "no experts",
        |f| f.set("expert_count", 0u32),
        "expert_count': is missing",
    ),
    (
        "many experts",
        |f| f.set("expert_count", 5000u32),
        "expert_count': is 5000",
    ),
    (
        "other experts",
        |f| f.set("expert_count", 5u32),
        "tensor 'blk.0.ffn_gate_exps.weight': has shape {64, 96, 4}, but the hyper-parameters ask for {64, 96, 5}",
    ),
    (
        "all experts and more",
        |f| f.set("expert_used_count", 5u32),
        "expert_used_count': is 5, but must be 1 to 4",
    ),
    (
        "none of the experts",
        |f| f.set("expert_used_count", 0u32),
        "expert_used_count': is 0",
    ),
    (
        "expert width",
        |f| f.set("expert_feed_forward_length", 0u32),
        "expert_feed_forward_length': is 0",
    ),
    (
        "no embedding",
        |f| f.remove("token_embd.weight"),
        "tensor 'token_embd.weight': is missing",
    ),
    (
        "no norm",
        |f| f.remove("blk.1.attn_norm.weight"),
        "tensor 'blk.1.attn_norm.weight': is missing (the model needs it with shape {64})",
    ),
    (
        "norm shape",
        |f| f.tensor("blk.1.attn_q_norm.weight", &[25]),
        "has shape {25}, but the hyper-parameters ask for {24}",
    ),
    (
        "transposed",
        |f| f.tensor("blk.0.attn_output.weight", &[64, 96]),
        "has shape {64, 96}, but the hyper-parameters ask for {96, 64}",
    ),
    (
        "bias shape",
        |f| f.tensor("blk.0.attn_q.bias", &[5]),
        "tensor 'blk.0.attn_q.bias': has shape {5}",
    ),
    (
        "scale shape",
        |f| f.tensor("blk.0.ffn_up_exps.scale", &[3]),
        "tensor 'blk.0.ffn_up_exps.scale': has shape {3}",
    ),
    (
        "type",
        |f| f.typed("token_embd.weight", TensorType::TQ1_0, &[256, 10]),
        "has shape {256, 10}",
    ),
    (
        "vocabulary",
        |f| f.set_full("tokenizer.ggml.tokens", MetaValue::strings(["a", "b"])),
        "has shape {64, 40}, but the hyper-parameters ask for {64, 2}",
    ),
    (
        "architecture",
        |f| f.set_full("general.architecture", "gpt9"),
        "'general.architecture': is 'gpt9', which is not supported; supported are qwen3moe, qwen3, qwen2, llama, gemma3",
    ),
    (
        "architecture kind",
        |f| f.set_full("general.architecture", 3u32),
        "'general.architecture': must be a string",
    ),
];

#[test]
fn hostile_hyper_parameters_and_tensors() {
    for (name, change, expected) in CASES {
        let mut fixture = Fixture::new("qwen3moe");
        change(&mut fixture);
        let error = match ModelSpec::from_gguf(&fixture.build()) {
            Ok(_) => panic!("{name} was accepted"),
            Err(error) => error.to_string(),
        };
        assert!(
            error.starts_with("fixture.gguf: ") && error.contains(expected),
            "{name}: {error}"
        );
        assert!(!error.contains('\n'), "{name}");
    }
}

#[test]
fn unsupported_types_and_bad_factors_are_named() {
    let mut fixture = Fixture::new("llama");
    fixture.set("feed_forward_length", 256u32);
    for layer in 0..LAYERS {
        fixture.tensor(&format!("blk.{layer}.ffn_gate.weight"), &[WIDTH, 256]);
        fixture.tensor(&format!("blk.{layer}.ffn_up.weight"), &[WIDTH, 256]);
        fixture.typed(
            &format!("blk.{layer}.ffn_down.weight"),
            TensorType::IQ1_S,
            &[256, WIDTH],
        );
    }
    let error = ModelSpec::from_gguf(&fixture.build()).unwrap_err().to_string();
    assert!(
        error.contains("'blk.0.ffn_down.weight': has the unsupported type IQ1_S"),
        "{error}"
    );

    let mut fixture = Fixture::new("llama");
    fixture.tensor("rope_freqs.weight", &[HEADS[2] / 2]);
    let gguf = fixture.build_with(|name, values| {
        if name == "rope_freqs.weight" {
            values[3] = 0.0;
        }
    });
    let error = ModelSpec::from_gguf(&gguf).unwrap_err().to_string();
    assert!(
        error.contains("'rope_freqs.weight': value 3 is 0, but must be above 0"),
        "{error}"
    );
}

#[test]
fn read_bytes_of_a_dense_tied_model() {
    let spec = spec(&Fixture::new("qwen2"));
    let memory = spec.memory(KvType::F32);
    let [heads, kv_heads, head_dim] = HEADS;
    let layer = 2 * WIDTH + WIDTH * head_dim * (2 * heads + 2 * kv_heads) + 3 * WIDTH * INNER;
    let values = LAYERS as u64 * layer + WIDTH + WIDTH * VOCAB;
    assert_eq!(memory.weights, 4 * values);
    assert_eq!(memory.read_per_token, 4 * (values + WIDTH));
    assert_eq!(memory.kv_per_token, LAYERS as u64 * 2 * kv_heads * head_dim * 4);
}
