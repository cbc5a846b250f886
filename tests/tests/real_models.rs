//! Small real models against llama.cpp, whose results are in `data/real_models.json`.
//!
//! The reference text is given to the engine, and at each of its 32 tokens ours must be the same:
//! - in practical arithmetic, except where llama.cpp's own two best logits lie within 0.1, where its second
//!   choice counts too (its variants differ by as much);
//! - in reference arithmetic, with log-probabilities as llama.cpp has them for the same values in F32.

use serde_json::Value as Json;
use sparkinfer::cpu::{CpuEngine, CpuOptions};
use sparkinfer::engine::Engine;
use sparkinfer::model::ModelSpec;
use sparkinfer::perplexity::negative_log_likelihood;
use sparkinfer::sample::argmax;
use sparkinfer::tokenizer::{EncodeOptions, Tokenizer};
use sparkinfer_gguf::Gguf;
use sparkinfer_tests::assets::Asset;

/// Largest gap between the reference's two best logits at which the second counts.
const NEAR_TIE: f64 = 0.1;

fn reference(asset: &str, kind: &str) -> Vec<Json> {
    let json: Json = serde_json::from_str(include_str!("../data/real_models.json")).unwrap();
    let model = json["models"]
        .as_array()
        .unwrap()
        .iter()
        .find(|model| model["asset"] == asset)
        .unwrap();
    model[kind].as_array().unwrap().clone()
}

fn ids(json: &Json) -> Vec<u32> {
    json.as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

/// Logits before each token of a prompt's reference text.
fn follow(engine: &mut dyn Engine, tokenizer: &Tokenizer, prompt: &Json) -> Vec<Vec<f32>> {
    let text = prompt["prompt"].as_str().unwrap();
    let options = EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    let mut tokens = tokenizer.encode(text, options).unwrap();
    assert_eq!(tokens.len() as u64, prompt["prompt_tokens"].as_u64().unwrap(), "{text}");
    let from = tokens.len() - 1;
    tokens.extend(ids(&prompt["ids"]));
    tokens.pop();
    let mut all = Vec::new();
    engine.reset();
    let mut each = |_: usize, logits: &[f32]| {
        all.push(logits.to_vec());
        Ok(())
    };
    engine.logits_of_all(&tokens, from, &mut each).unwrap();
    assert_eq!(all.len(), 32);
    all
}

/// Calls `check` with the logits of every step of every prompt, if the asset is there.
fn for_each_step(asset: &str, kind: &str, options: &CpuOptions, check: impl Fn(&Json, usize, &[f32])) {
    let Some(path) = Asset::named(asset).unwrap().get() else {
        return;
    };
    let gguf = Gguf::open(&path).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let mut engine = CpuEngine::new(&gguf, &ModelSpec::from_gguf(&gguf).unwrap(), options).unwrap();
    let prompts = reference(asset, kind);
    assert!(prompts.len() >= 6);
    for prompt in &prompts {
        for (step, logits) in follow(&mut engine, &tokenizer, prompt).iter().enumerate() {
            check(prompt, step, logits);
        }
    }
    println!(
        "{asset}: {} prompts of 32 tokens as llama.cpp has them ({kind})",
        prompts.len()
    );
}

fn check_greedy(asset: &str) {
    for_each_step(asset, "greedy", &CpuOptions::practical(128), |prompt, step, logits| {
        let (found, expected) = (argmax(logits), prompt["ids"][step].as_u64().unwrap() as u32);
        let gap = prompt["gap"][step].as_f64().unwrap();
        let near_tie = gap < NEAR_TIE && prompt["second"][step].as_u64() == Some(u64::from(found));
        let text = &prompt["prompt"];
        assert!(
            found == expected || near_tie,
            "{text}, step {step}: {found}, not {expected}, gap {gap}"
        );
    });
}

/// `tolerance` is relative to the log-probability, at least 1.
fn check_exact(asset: &str, tolerance: f64) {
    for_each_step(asset, "exact", &CpuOptions::reference(128), |prompt, step, logits| {
        for (id, logprob) in [("ids", "logprob"), ("second", "second_logprob")] {
            let id = prompt[id][step].as_u64().unwrap() as u32;
            let (found, expected) = (
                -negative_log_likelihood(logits, id),
                prompt[logprob][step].as_f64().unwrap(),
            );
            let error = (found - expected).abs() / expected.abs().max(1.0);
            let text = &prompt["prompt"];
            assert!(
                error < tolerance,
                "{text}, step {step}, token {id}: {found}, expected {expected}"
            );
        }
        let gap = prompt["logprob"][step].as_f64().unwrap() - prompt["second_logprob"][step].as_f64().unwrap();
        let expected = prompt["ids"][step].as_u64().unwrap() as u32;
        assert!(
            argmax(logits) == expected || gap < 2.0 * tolerance,
            "step {step}: gap {gap}"
        );
    });
}

#[test]
fn smollm2_greedy() {
    check_greedy("smollm2");
}

#[test]
fn qwen25_greedy() {
    check_greedy("qwen25");
}

#[test]
fn gemma3_greedy() {
    check_greedy("gemma3");
}

#[test]
fn smollm2_exact() {
    check_exact("smollm2", 1e-3);
}

#[test]
fn qwen25_exact() {
    check_exact("qwen25", 1e-3);
}

/// llama.cpp looks its GELU up in a table of f16, which shows in the third digit.
#[test]
fn gemma3_exact() {
    check_exact("gemma3", 2e-2);
}
