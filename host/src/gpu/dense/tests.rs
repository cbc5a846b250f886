//! The dense path in the emulator, against the CPU reference with the same cache type.

use sparkinfer_gguf::Gguf;

use crate::cpu::{CpuEngine, CpuOptions};
use crate::engine::{Engine, generate_on_host};
use crate::gpu::decode::DecodePlan;
use crate::gpu::emulated::Emulated;
use crate::gpu::path::{GpuOptions, Layout};
use crate::gpu::plan::Stage;
use crate::gpu::{Backend, GpuEngine};
use crate::model::fixture::{Fixture, VOCAB};
use crate::model::{KvType, ModelSpec};
use crate::sample::{SampleOptions, Sampler};
use crate::synth::{Mix, Preset, Synth, SynthOptions};
use crate::tuning::Tuning;

const CONTEXT: usize = 192;
/// Products round activations to 16 bits, attention queries and weights to 11.
const ALLOWED: f32 = 1e-2;

fn model(name: &str, mix: Mix, layers: u32) -> (Gguf, ModelSpec) {
    let options = SynthOptions {
        preset: Preset::find(name).unwrap(),
        mix,
        layers: Some(layers),
        seed: 5,
        vocabulary: None,
    };
    let bytes = Synth::new(&options).and_then(|synth| synth.to_vec()).unwrap();
    let gguf = Gguf::from_vec(name, bytes).unwrap();
    let spec = ModelSpec::from_gguf(&gguf).unwrap();
    (gguf, spec)
}

fn cpu<'m>(gguf: &'m Gguf, spec: &ModelSpec) -> CpuEngine<'m> {
    let options = CpuOptions {
        kv: KvType::F16,
        threads: 1,
        ..CpuOptions::reference(CONTEXT)
    };
    CpuEngine::new(gguf, spec, &options).unwrap()
}

fn gpu(gguf: &Gguf, spec: &ModelSpec) -> GpuEngine<Emulated> {
    let options = GpuOptions::practical(CONTEXT);
    GpuEngine::load_with(Emulated::default(), gguf, spec, &options, &mut |_, _| {}).unwrap()
}

fn all_logits(engine: &mut dyn Engine, tokens: &[u32], from: usize) -> Vec<f32> {
    let mut all = Vec::new();
    let mut each = |_: usize, logits: &[f32]| {
        all.extend_from_slice(logits);
        Ok(())
    };
    engine.logits_of_all(tokens, from, &mut each).unwrap();
    all
}

fn close(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len());
    let spread = want.iter().fold(0f32, |most, x| most.max(x.abs()));
    assert!(spread > 0.2, "the model says nothing: largest logit {spread}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(
            (got - want).abs() <= ALLOWED * spread,
            "{what}, logit {i}: {got}, not {want}"
        );
    }
}

/// Every architecture of dense layers, every type of weights; rows that end within a tile (320 columns), biases, GELU,
/// norms behind operations.
const MODELS: [(&str, Mix); 7] = [
    ("small-llama", Mix::Q4_0),
    ("small-llama", Mix::Q8_0),
    ("small-qwen2", Mix::Q4KM),
    ("small-qwen3", Mix::Q5KM),
    ("small-qwen3", Mix::Q6K),
    ("small-gemma3", Mix::Q4KM),
    ("small-gemma3", Mix::Q5KM),
];

#[test]
fn logits_are_those_of_the_reference() {
    for (name, mix) in MODELS {
        let (gguf, spec) = model(name, mix, 2);
        let mut gpu = gpu(&gguf, &spec);
        assert_eq!(
            gpu.plan().body.stages.len(),
            if name == "small-gemma3" { 13 } else { 12 },
            "{name}"
        );
        // A chunk, and a step.
        let tokens = [5, 300, 17, 9, 1000];
        let want = all_logits(&mut cpu(&gguf, &spec), &tokens, 0);
        let mut got = all_logits(&mut gpu, &tokens[..4], 0);
        got.extend(gpu.decode(tokens[4]).unwrap());
        close(&got, &want, &format!("{name} {}", mix.name()));
    }
}

/// In chunks of five tokens: over the end of a page, past the window of gemma3, from the middle of a cache on.
#[test]
fn prompts_are_those_of_single_tokens() {
    for (name, mix, begun) in [
        ("small-llama", Mix::Q8_0, 59),
        ("small-qwen2", Mix::Q4KM, 2),
        ("small-gemma3", Mix::Q5KM, 126),
    ] {
        let (gguf, spec) = model(name, mix, 1);
        let tokens: Vec<u32> = (0..begun + 9).map(|i| (i * i * 7 + 3 * i) % 4000).collect();
        let (begun, rest) = tokens.split_at(begun as usize);
        let want = {
            let mut steps = gpu(&gguf, &spec);
            tokens
                .iter()
                .for_each(|token| drop(steps.decode(*token).unwrap().to_vec()));
            steps.truncate(begun.len());
            rest.iter()
                .flat_map(|token| steps.decode(*token).unwrap().to_vec())
                .collect::<Vec<_>>()
        };
        let mut chunks = gpu(&gguf, &spec);
        chunks.prefill(begun).unwrap();
        chunks.prompt().unwrap().limit(5);
        close(&all_logits(&mut chunks, rest, 0), &want, name);
    }
}

#[test]
fn launches_declare_the_bytes_that_a_token_needs() {
    for (name, mix) in MODELS {
        let (gguf, spec) = model(name, mix, 1);
        let engine = gpu(&gguf, &spec);
        let plan = engine.plan();
        let declared = plan.body.bytes() + plan.head.bytes() + plan.advance.bytes();
        assert_eq!(declared, spec.memory(KvType::F16).read_per_token, "{name}");
    }
}

#[test]
fn traces_are_those_of_the_cpu() {
    let (gguf, spec) = model("small-gemma3", Mix::Q4KM, 2);
    let want = cpu(&gguf, &spec).trace(6).unwrap();
    let got = gpu(&gguf, &spec).trace(6).unwrap();
    assert_eq!(got.len(), want.len());
    for (part, (got, want)) in got.iter().zip(&want).enumerate() {
        close(got, want, &format!("part {part}"));
    }
}

#[test]
fn launches_follow_the_tuning() {
    let (gguf, spec) = model("small-qwen2", Mix::Q4KM, 1);
    let mut gpu = gpu(&gguf, &spec);
    let want = all_logits(&mut gpu, &[5, 9], 0);
    let blocks = |gpu: &GpuEngine<Emulated>| gpu.plan().head.stages[0].launch.config().grid[0];
    let before = blocks(&gpu);
    let tuning = Tuning {
        head_blocks: 1,
        attention_splits: 2,
        ..Tuning::default()
    };
    gpu.retune(tuning).unwrap();
    gpu.reset();
    assert!(blocks(&gpu) < before, "{before} blocks");
    close(&all_logits(&mut gpu, &[5, 9], 0), &want, "retuned");
}

/// Splits and blocks of a cluster of every attention of a plan.
fn attentions(plan: &DecodePlan) -> Vec<(u32, u32)> {
    let stages = plan.body.stages.iter().filter(|stage| stage.name == "attention");
    let shape = |stage: &Stage| (stage.launch.config().grid[0], stage.launch.config().cluster);
    stages.map(shape).collect()
}

/// Sixteen splits of a chunk each at least: one has all the work of the first steps, a cluster of eight that of the next ones.
#[test]
fn steps_have_as_many_splits_as_their_depth_needs() {
    let (gguf, spec) = model("small-qwen2", Mix::Q4KM, 1);
    let tuning = Tuning {
        attention_splits: 16,
        attention_least_chunks: 1,
        ..Tuning::default()
    };
    let options = GpuOptions {
        tuning,
        ..GpuOptions::practical(CONTEXT)
    };
    let mut gpu = GpuEngine::load_with(Emulated::default(), &gguf, &spec, &options, &mut |_, _| {}).unwrap();
    let tokens: Vec<u32> = (0..153).map(|i| (i * i * 7 + 3 * i) % 4000).collect();
    let want = all_logits(&mut cpu(&gguf, &spec), &tokens, 0);
    let vocab = want.len() / tokens.len();
    // Heads of 64 dims: five times as deep as each split has one chunk.
    assert_eq!(attentions(gpu.plans().at(640).0), [(8, 8)]);
    assert_eq!(attentions(gpu.plans().at(641).0), [(16, 1)]);
    for (begun, shape) in [(14, (1, 1)), (17, (8, 8)), (126, (8, 8)), (150, (8, 8))] {
        gpu.reset();
        gpu.prefill(&tokens[..begun]).unwrap();
        for at in begun..begun + 3 {
            if at == begun {
                assert_eq!(attentions(gpu.plan()), [shape], "at {at}");
            }
            let got = gpu.decode(tokens[at]).unwrap();
            close(got, &want[vocab * at..vocab * (at + 1)], &format!("at {at}"));
        }
    }
}

/// A window that a cluster of splits holds needs no more of them however deep it is.
#[test]
fn windows_need_few_splits_at_any_depth() {
    let (gguf, spec) = model("small-gemma3", Mix::Q4KM, 6);
    let tuning = Tuning {
        attention_splits: 16,
        attention_least_chunks: 2,
        ..Tuning::default()
    };
    let options = GpuOptions {
        tuning,
        ..GpuOptions::practical(512)
    };
    let gpu = GpuEngine::load_with(Emulated::default(), &gguf, &spec, &options, &mut |_, _| {}).unwrap();
    let mut want = vec![(8, 8); 5];
    want.push((16, 1));
    let (near, deep) = (gpu.plans().at(512).0, gpu.plans().at(513).0);
    assert_eq!((attentions(near), attentions(deep)), (vec![(8, 8); 6], want));
    assert_eq!(attentions(gpu.plans().at(32).0), [(1, 1); 6]);
}

#[test]
fn the_device_feeds_itself() {
    let (gguf, spec) = model("small-qwen2", Mix::Q4KM, 2);
    let greedy = |engine: &mut dyn Engine, on_host: bool| {
        let (mut seen, mut sampler) = (Vec::new(), Sampler::new(SampleOptions::default()));
        let mut take = |token| {
            seen.push(token);
            std::ops::ControlFlow::Continue(())
        };
        let (prompt, limit) = ([7, 1, 9, 30, 2], 6);
        if on_host {
            generate_on_host(engine, &prompt, &mut sampler, limit, &mut take).unwrap();
        } else {
            engine.generate(&prompt, &mut sampler, limit, &mut take).unwrap();
        }
        seen
    };
    let (mut cpu, mut gpu) = (cpu(&gguf, &spec), gpu(&gguf, &spec));
    assert_eq!(greedy(&mut gpu, false), greedy(&mut cpu, true));
    assert_eq!(gpu.position(), cpu.position());
}

#[test]
fn what_they_do_not_take_goes_the_general_way() {
    let multiprocessors = Emulated::default().multiprocessors();
    let kind = |spec: &ModelSpec, options| Layout::new(spec, &options, multiprocessors).unwrap().kind();
    let practical = GpuOptions::practical(CONTEXT);
    let (_, spec) = model("small-qwen3", Mix::Q4KM, 1);
    assert_eq!(kind(&spec, practical), "");
    assert_eq!(kind(&spec, GpuOptions::reference(CONTEXT)), ", f32 reference");
    let (_, spec) = model("small-qwen3", Mix::F16, 1);
    assert_eq!(kind(&spec, practical), ", general kernels");
    let floats = Fixture::new("qwen3").build();
    let spec = ModelSpec::from_gguf(&floats).unwrap();
    assert_eq!(
        (kind(&spec, practical), spec.vocab_size),
        (", general kernels", VOCAB as usize)
    );
}
