//! The engine in the emulator, against the CPU engine and llama.cpp's goldens.

use std::ops::ControlFlow;

use sparkinfer_gguf::Gguf;

use super::emulated::Emulated;
use super::{Arithmetic, GpuEngine, needs};
use crate::cpu::{CpuEngine, CpuOptions};
use crate::engine::Engine;
use crate::model::ModelSpec;
use crate::sample::{SampleOptions, Sampler};

/// "Emma Woodhouse, handsome, clever, and rich," and llama.cpp's first greedy tokens behind it.
const PROMPT: [u32; 14] = [36, 1783, 3628, 11, 1956, 502, 11, 1782, 333, 11, 292, 549, 443, 11];
const GREEDY: [u32; 3] = [292, 705, 961];

fn bundled() -> (Gguf, ModelSpec) {
    let gguf = crate::load::gguf(None).expect("the bundled model is a model");
    let spec = ModelSpec::from_gguf(&gguf).expect("the bundled model is supported");
    (gguf, spec)
}

fn load(gguf: &Gguf, spec: &ModelSpec) -> GpuEngine<Emulated> {
    GpuEngine::load(Emulated::default(), gguf, spec, 128, &mut |_, _| {}).expect("the model fits")
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn logits_and_greedy_tokens_are_those_of_the_reference() {
    let (gguf, spec) = bundled();
    let mut gpu = load(&gguf, &spec);
    let mut cpu = CpuEngine::new(&gguf, &spec, &CpuOptions::reference(128)).unwrap();
    let expected = cpu.prefill(&PROMPT).unwrap().to_vec();
    let difference = largest_difference(gpu.prefill(&PROMPT).unwrap(), &expected);
    // Logits are of order 10; the cache holds 11-bit values.
    assert!(difference < 0.03, "logits differ by {difference}");
    gpu.reset();
    let mut tokens = Vec::new();
    let mut sampler = Sampler::new(SampleOptions::default());
    let count = gpu.generate(&PROMPT, &mut sampler, GREEDY.len(), &mut |token| {
        tokens.push(token);
        ControlFlow::Continue(())
    });
    assert_eq!((count.unwrap(), tokens.as_slice()), (GREEDY.len(), &GREEDY[..]));
    assert_eq!(gpu.position(), PROMPT.len() + GREEDY.len() - 1);
}

/// In f32 with the reference's own cache type, what is left is the order of sums.
#[test]
fn the_reference_arithmetic_is_that_of_the_cpu() {
    let (gguf, spec) = bundled();
    let prompt = &PROMPT[..5];
    let options = CpuOptions {
        kv: crate::model::KvType::F16,
        ..CpuOptions::reference(64)
    };
    let expected = CpuEngine::new(&gguf, &spec, &options)
        .unwrap()
        .prefill(prompt)
        .unwrap()
        .to_vec();
    let reference = Arithmetic::Reference;
    let mut gpu = GpuEngine::load_with(Emulated::default(), &gguf, &spec, 64, reference, &mut |_, _| {}).unwrap();
    let difference = largest_difference(gpu.prefill(prompt).unwrap(), &expected);
    assert!(difference < 2e-3, "logits differ by {difference}");
}

#[test]
fn what_is_needed_is_what_is_taken() {
    let (gguf, spec) = bundled();
    let needs = needs(&spec, 128, 4).unwrap();
    let engine = load(&gguf, &spec);
    assert_eq!(needs.weights, engine.description().weight_bytes);
    assert_eq!(needs.cache, spec.memory(crate::model::KvType::F16).kv_per_token * 128);
    assert!(needs.scratch < 1 << 20, "{}", needs.scratch);
}
