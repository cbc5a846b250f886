//! The general path in the emulator, against the CPU reference with the same cache type.

use std::ops::ControlFlow;

use sparkinfer_gguf::{Gguf, TensorType};

use super::super::emulated::Emulated;
use super::super::path::{Arithmetic, GpuOptions, Layout};
use super::super::{Backend, GpuEngine};
use crate::cpu::{CpuEngine, CpuOptions};
use crate::engine::{Engine, generate_on_host};
use crate::model::fixture::{EXPERTS, Fixture, HEADS, INNER, LAYERS, VOCAB, WIDTH};
use crate::model::{KvType, ModelSpec, architectures};
use crate::sample::{SampleOptions, Sampler};
use crate::synth::{Mix, Preset, Synth, SynthOptions};
use crate::tuning::{CHOICES, Tuning, Workload};

const CONTEXT: usize = 128;
/// Logits of these models are of order 1; sums are added in another order, and a key may round to its neighbour.
const EXACT: f32 = 5e-4;
/// The fast attention kernels round queries and weights to 11 bits.
const PRACTICAL: f32 = 1e-2;

fn cpu<'m>(gguf: &'m Gguf, spec: &ModelSpec) -> CpuEngine<'m> {
    let options = CpuOptions {
        kv: KvType::F16,
        threads: 1,
        ..CpuOptions::reference(CONTEXT)
    };
    CpuEngine::new(gguf, spec, &options).unwrap()
}

fn options(arithmetic: Arithmetic) -> GpuOptions {
    GpuOptions {
        arithmetic,
        ..GpuOptions::practical(CONTEXT)
    }
}

fn gpu(gguf: &Gguf, spec: &ModelSpec, arithmetic: Arithmetic) -> GpuEngine<Emulated> {
    let options = options(arithmetic);
    GpuEngine::load_with(Emulated::default(), gguf, spec, &options, &mut |_, _| {}).unwrap()
}

fn all_logits(engine: &mut dyn Engine, tokens: &[u32]) -> Vec<f32> {
    let mut all = Vec::new();
    let mut each = |_: usize, logits: &[f32]| {
        all.extend_from_slice(logits);
        Ok(())
    };
    engine.logits_of_all(tokens, 0, &mut each).unwrap();
    all
}

/// Compares the logits behind each of `tokens`.
fn check(gguf: &Gguf, tokens: &[u32], arithmetic: Arithmetic, allowed: f32) {
    let spec = ModelSpec::from_gguf(gguf).unwrap();
    let want = all_logits(&mut cpu(gguf, &spec), tokens);
    let got = all_logits(&mut gpu(gguf, &spec, arithmetic), tokens);
    assert_eq!(got.len(), want.len());
    let spread = want.iter().fold(0f32, |most, x| most.max(x.abs()));
    assert!(spread > 0.2, "the model says nothing: largest logit {spread}");
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        let (token, logit) = (i / spec.vocab_size, i % spec.vocab_size);
        assert!(
            (got - want).abs() <= allowed * spread,
            "token {token}, logit {logit}: {got}, not {want}"
        );
    }
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * i * 7 + 3 * i) % VOCAB as u32).collect()
}

/// Heads of 24 dims, whole and sliding windows of 5 tokens, norms behind operations, a tied head, GELU, experts.
#[test]
fn every_architecture() {
    for architecture in architectures() {
        let gguf = Fixture::new(architecture).build();
        check(&gguf, &tokens(7), Arithmetic::Reference, EXACT);
    }
}

#[test]
fn practical_arithmetic_takes_the_fast_attention() {
    let mut fixture = Fixture::new("gemma3");
    let [heads, kv_heads, _] = HEADS;
    fixture
        .set("attention.key_length", 64u32)
        .set("attention.value_length", 64u32);
    for layer in 0..LAYERS {
        let mut add = |name: &str, shape: &[u64]| {
            fixture.tensor(&format!("blk.{layer}.{name}.weight"), shape);
        };
        add("attn_q", &[WIDTH, heads * 64]);
        add("attn_k", &[WIDTH, kv_heads * 64]);
        add("attn_v", &[WIDTH, kv_heads * 64]);
        add("attn_output", &[heads * 64, WIDTH]);
        add("attn_q_norm", &[64]);
        add("attn_k_norm", &[64]);
    }
    check(&fixture.build(), &tokens(7), Arithmetic::Practical, PRACTICAL);
}

#[test]
fn biases_second_scales_rotations_and_caps() {
    let [heads, kv_heads, head_dim] = HEADS;
    let mut fixture = Fixture::new("qwen2");
    fixture
        .set("rope.scaling.type", "yarn")
        .set("rope.scaling.factor", 4f32);
    fixture.set("rope.scaling.original_context_length", 16u32);
    for layer in 0..LAYERS {
        for (name, len) in [("attn_q", heads), ("attn_k", kv_heads), ("attn_v", kv_heads)] {
            fixture.tensor(&format!("blk.{layer}.{name}.bias"), &[len * head_dim]);
        }
        fixture.tensor(&format!("blk.{layer}.ffn_up.bias"), &[INNER]);
        fixture.tensor(&format!("blk.{layer}.ffn_down.scale"), &[1]);
    }
    fixture
        .tensor("token_embd.scale", &[1])
        .tensor("output.weight", &[WIDTH, VOCAB])
        .tensor("output.bias", &[VOCAB]);
    check(&fixture.build(), &tokens(4), Arithmetic::Reference, EXACT);
    let mut fixture = Fixture::new("gemma3");
    check(
        &fixture.set("final_logit_softcapping", 1.5f32).build(),
        &tokens(3),
        Arithmetic::Reference,
        EXACT,
    );
}

#[test]
fn fused_stacks_of_experts_with_scales() {
    let mut fixture = Fixture::new("llama");
    fixture.add_experts();
    for layer in 0..LAYERS {
        for name in ["ffn_gate_exps", "ffn_up_exps"] {
            fixture.remove(&format!("blk.{layer}.{name}.weight"));
        }
        fixture.tensor(
            &format!("blk.{layer}.ffn_gate_up_exps.weight"),
            &[WIDTH, 2 * INNER, EXPERTS],
        );
        fixture.tensor(&format!("blk.{layer}.ffn_down_exps.scale"), &[EXPERTS]);
    }
    check(&fixture.build(), &tokens(4), Arithmetic::Reference, EXACT);
}

/// One layer, over the end of the first page.
#[test]
fn a_page_ends_and_another_begins() {
    let mut fixture = Fixture::new("llama");
    fixture.set("block_count", 1u32);
    (1..LAYERS).for_each(|layer| {
        for name in ["attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output"] {
            fixture.remove(&format!("blk.{layer}.{name}.weight"));
        }
        for name in ["ffn_gate", "ffn_up", "ffn_down"] {
            fixture.remove(&format!("blk.{layer}.{name}.weight"));
        }
    });
    check(&fixture.build(), &tokens(66), Arithmetic::Reference, EXACT);
}

/// Quantised types of every kind, with second scales where they have them.
#[test]
fn quantised_models() {
    for (name, mix) in [
        ("small-qwen3moe", Mix::Nvfp4),
        ("small-qwen3moe", Mix::Mxfp4Moe),
        ("small-gemma3", Mix::Q4KM),
        ("small-qwen2", Mix::Q4_0),
    ] {
        let options = SynthOptions {
            preset: Preset::find(name).unwrap(),
            mix,
            layers: Some(1),
            seed: 3,
            vocabulary: None,
        };
        let bytes = Synth::new(&options).and_then(|synth| synth.to_vec()).unwrap();
        let gguf = Gguf::from_vec(name, bytes).unwrap();
        check(&gguf, &[5, 300], Arithmetic::Reference, EXACT);
    }
}

/// Tiles where types have them, with rows that end in the middle of one; experts, scales, biases, GELU.
#[test]
fn quantised_models_in_tiles() {
    for (name, mix) in [
        ("small-qwen3moe", Mix::Nvfp4),
        ("small-qwen3moe", Mix::Mxfp4Moe),
        ("small-gemma3", Mix::Q5KM),
        ("small-qwen2", Mix::Q4KM),
        ("small-llama", Mix::Q4_0),
        ("small-qwen3", Mix::Q2K),
        ("small-qwen3", Mix::Q3K),
        ("small-qwen3", Mix::Iq4Xs),
    ] {
        let options = SynthOptions {
            preset: Preset::find(name).unwrap(),
            mix,
            layers: Some(1),
            seed: 3,
            vocabulary: None,
        };
        let bytes = Synth::new(&options).and_then(|synth| synth.to_vec()).unwrap();
        let gguf = Gguf::from_vec(name, bytes).unwrap();
        check(&gguf, &[5, 300, 17], Arithmetic::Practical, PRACTICAL);
        let spec = ModelSpec::from_gguf(&gguf).unwrap();
        let plan = gpu(&gguf, &spec, Arithmetic::Practical);
        let plan = plan.plan();
        assert_eq!(
            plan.body.bytes() + plan.head.bytes() + plan.advance.bytes(),
            spec.memory(KvType::F16).read_per_token,
            "{name}"
        );
    }
}

/// Attention and networks with biases, experts of several types: a chunk's logits are those of single tokens.
#[test]
fn prompts_in_tiles_go_in_chunks() {
    for (name, mix) in [
        ("small-qwen3moe", Mix::Q5KM),
        ("small-qwen3moe", Mix::Q8_0),
        ("small-qwen3moe", Mix::Q4_0),
        ("small-qwen3moe", Mix::Q2K),
        ("small-qwen3moe", Mix::Q3K),
        ("small-qwen3moe", Mix::Iq4Nl),
        ("small-qwen3", Mix::Iq4Xs),
        ("small-qwen3moe", Mix::Mxfp4Moe),
        ("small-qwen3moe", Mix::Nvfp4),
        ("small-gemma3", Mix::Q2K),
        ("small-qwen3moe", Mix::F16),
        ("small-qwen2", Mix::Bf16),
        ("small-qwen3moe", Mix::F32),
    ] {
        let options = SynthOptions {
            preset: Preset::find(name).unwrap(),
            mix,
            layers: Some(1),
            seed: 3,
            vocabulary: None,
        };
        let bytes = Synth::new(&options).and_then(|synth| synth.to_vec()).unwrap();
        let gguf = Gguf::from_vec(name, bytes).unwrap();
        let spec = ModelSpec::from_gguf(&gguf).unwrap();
        let mut engine = gpu(&gguf, &spec, Arithmetic::Practical);
        assert!(engine.description().device.ends_with(", general kernels"), "{name}");
        assert!(engine.prompt().is_some(), "{name}: prompts go token by token");
        check(&gguf, &[5, 300, 17, 9, 44, 1000, 3], Arithmetic::Practical, PRACTICAL);
    }
    let floats = Fixture::new("qwen3").build();
    let spec = ModelSpec::from_gguf(&floats).unwrap();
    assert!(gpu(&floats, &spec, Arithmetic::Practical).prompt().is_none());
}

/// Five greedy tokens behind two that are cached and two that are given, sampled on the host or by the engine.
fn greedy(engine: &mut dyn Engine, on_host: bool) -> Vec<u32> {
    let mut seen = Vec::new();
    let mut sampler = Sampler::new(SampleOptions::default());
    let mut take = |token| {
        seen.push(token);
        ControlFlow::Continue(())
    };
    engine.truncate(2);
    if on_host {
        generate_on_host(engine, &[7, 1], &mut sampler, 5, &mut take).unwrap();
    } else {
        engine.generate(&[7, 1], &mut sampler, 5, &mut take).unwrap();
    }
    seen
}

#[test]
fn the_device_feeds_itself_and_sequences_can_be_cut() {
    let gguf = Fixture::new("qwen3").build();
    let spec = ModelSpec::from_gguf(&gguf).unwrap();
    let (mut cpu, mut gpu) = (cpu(&gguf, &spec), gpu(&gguf, &spec, Arithmetic::Practical));
    cpu.prefill(&[3, 9, 11]).unwrap();
    gpu.prefill(&[3, 9, 11]).unwrap();
    assert_eq!(greedy(&mut gpu, false), greedy(&mut cpu, true));
    assert_eq!(gpu.position(), cpu.position());
}

#[test]
fn traces_are_those_of_the_cpu() {
    let gguf = Fixture::new("gemma3").build();
    let spec = ModelSpec::from_gguf(&gguf).unwrap();
    let want = cpu(&gguf, &spec).trace(6).unwrap();
    let got = gpu(&gguf, &spec, Arithmetic::Reference).trace(6).unwrap();
    assert_eq!(got.len(), want.len());
    for (part, (got, want)) in got.iter().zip(&want).enumerate() {
        let difference = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(
            got.len() == want.len() && difference < EXACT,
            "part {part}: {difference}"
        );
    }
}

/// How many blocks share the rows changes no sum.
#[test]
fn the_number_of_blocks_changes_no_bit() {
    let gguf = Fixture::new("qwen3moe").build();
    let spec = ModelSpec::from_gguf(&gguf).unwrap();
    for arithmetic in [Arithmetic::Practical, Arithmetic::Reference] {
        let mut gpu = gpu(&gguf, &spec, arithmetic);
        let expected = all_logits(&mut gpu, &tokens(3));
        for choice in CHOICES.iter().filter(|choice| choice.workload == Workload::Decode) {
            for &value in [choice.range.start(), choice.range.end()] {
                gpu.retune(choice.set(Tuning::default(), value)).unwrap();
                gpu.reset();
                assert!(all_logits(&mut gpu, &tokens(3)) == expected, "{} {value}", choice.name);
            }
        }
    }
}

#[test]
fn tied_heads_are_placed_once_and_needs_are_exact() {
    let gguf = Fixture::new("gemma3").build();
    let spec = ModelSpec::from_gguf(&gguf).unwrap();
    let multiprocessors = Emulated::default().multiprocessors();
    let layout = Layout::new(&spec, &GpuOptions::practical(CONTEXT), multiprocessors).unwrap();
    let needs = layout.needs();
    let engine = gpu(&gguf, &spec, Arithmetic::Practical);
    assert_eq!(engine.description().weight_bytes, needs.weights);
    assert!(engine.description().device.ends_with(", general kernels"));
    // Heads of 24 dims take the room of 32.
    assert_eq!(
        needs.cache,
        spec.memory(KvType::F16).kv_per_token * CONTEXT as u64 * 32 / 24
    );
    // Padding between pieces and the rotation tables come on top of the file's tensors.
    let file = spec.memory(KvType::F16).weights;
    assert!(
        (file..file + 256 * 40).contains(&needs.weights),
        "{} for {file}",
        needs.weights
    );
}

#[test]
fn launches_declare_the_bytes_that_a_token_needs() {
    for architecture in architectures() {
        let gguf = Fixture::new(architecture).build();
        let spec = ModelSpec::from_gguf(&gguf).unwrap();
        let engine = gpu(&gguf, &spec, Arithmetic::Reference);
        let plan = engine.plan();
        let declared = plan.body.bytes() + plan.head.bytes() + plan.advance.bytes();
        assert_eq!(declared, spec.memory(KvType::F16).read_per_token, "{architecture}");
    }
}

#[test]
fn what_no_kernel_takes_is_said_before_anything_is_loaded() {
    let mut spec = ModelSpec::from_gguf(&Fixture::new("qwen2").build()).unwrap();
    spec.embedding.table.bias = spec.layers[0].parts[0]
        .post_norm
        .clone()
        .or(Some(spec.output_norm.clone()));
    let error = Layout::new(&spec, &GpuOptions::practical(CONTEXT), 4).err().unwrap();
    assert!(error.to_string().contains("an embedding takes no bias"), "{error}");
    spec.embedding.table.bias = None;
    spec.embedding.table.matrix.ty = TensorType::I32;
    let error = Layout::new(&spec, &GpuOptions::practical(CONTEXT), 4).err().unwrap();
    assert!(error.to_string().contains("type I32"), "{error}");
}
