//! Cuts of real models: the GPU engine, emulated, against the CPU; and experts against the network they come from.

use sparkinfer::cpu::{CpuEngine, CpuOptions};
use sparkinfer::engine::Engine;
use sparkinfer::gpu::emulated::Emulated;
use sparkinfer::model::{ModelSpec, Operation};
use sparkinfer_gguf::Gguf;
use sparkinfer_tests::assets::SMOLLM2;
use sparkinfer_tests::cuts::{CUTS, Size, same_tokens};
use sparkinfer_tests::recast::Recast;

/// Checks the cut of that name in the emulator.
fn check(name: &str) {
    let cut = CUTS.iter().find(|cut| cut.name == name).unwrap();
    let outcome = cut.with(Size::Small, |recast| {
        let prompt = [11, 200, 3, 77, 150, 42, 9, 231];
        same_tokens(&recast.to_gguf()?, Emulated::default(), &prompt, 4)
    });
    if let Some(remark) = outcome.unwrap() {
        println!("{name}: {remark}");
    }
}

#[test]
fn smollm2_cut() {
    check("smollm2-cut");
}

#[test]
fn smollm2_experts() {
    check("smollm2-experts");
}

#[test]
fn smollm2_cut_experts() {
    check("smollm2-cut-experts");
}

#[test]
fn qwen2_cut() {
    check("qwen2-cut");
}

#[test]
fn gemma3_cut() {
    check("gemma3-cut");
}

#[test]
fn qwen3_cut() {
    check("qwen3-cut");
}

/// Logits behind each of some tokens.
fn logits(gguf: &Gguf, options: &CpuOptions) -> Vec<f32> {
    let mut engine = CpuEngine::new(gguf, &ModelSpec::from_gguf(gguf).unwrap(), options).unwrap();
    let mut all = Vec::new();
    let mut each = |_: usize, logits: &[f32]| {
        all.extend_from_slice(logits);
        Ok(())
    };
    let tokens: Vec<u32> = (0..12).map(|i| (i * i * 7 + 3 * i + 40) % 4096).collect();
    engine.logits_of_all(&tokens, 0, &mut each).unwrap();
    all
}

/// Compares SmolLM2 with a recast of it that computes the same.
fn same_logits(recast: impl Fn(&mut Recast), options: &CpuOptions, allowed: f32) {
    let Some(path) = SMOLLM2.get() else {
        return;
    };
    let source = Gguf::open(path).unwrap();
    let mut dense = Recast::of(&source).unwrap();
    dense.keep_tokens(4096).unwrap();
    let mut experts = dense.clone();
    recast(&mut experts);
    let (dense, experts) = (dense.to_gguf().unwrap(), experts.to_gguf().unwrap());
    let spec = ModelSpec::from_gguf(&experts).unwrap();
    assert!(matches!(spec.layers[29].parts[1].operation, Operation::Moe(_)));
    let (want, got) = (logits(&dense, options), logits(&experts, options));
    let largest = want.iter().fold(0f32, |most, x| most.max(x.abs()));
    let error = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(largest > 5.0 && got.len() == want.len());
    assert!(error <= allowed * largest, "off by {error} of {largest}");
    println!(
        "experts of SmolLM2: off by {:.1e} of the largest logit",
        error / largest
    );
}

/// All 30 layers: two of four equal experts, whose weights add up to 1.
#[test]
fn copies_of_a_network_compute_what_it_does() {
    let copies = |recast: &mut Recast| {
        recast.copy_into_experts(4, 2).unwrap();
    };
    same_logits(copies, &CpuOptions::reference(16), 1e-5);
    same_logits(copies, &CpuOptions::practical(16), 3e-2);
}

/// All 30 layers: eight experts, an eighth of the network each, all of them used with an eighth of the weight.
#[test]
fn parts_of_a_network_add_up_to_it() {
    let parts = |recast: &mut Recast| {
        recast.cut_into_experts(8).unwrap();
    };
    same_logits(parts, &CpuOptions::reference(16), 1e-5);
    same_logits(parts, &CpuOptions::practical(16), 3e-2);
}
