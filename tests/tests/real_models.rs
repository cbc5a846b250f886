//! Small real models against llama.cpp: 32 greedy tokens for each prompt of `data/real_models.json`.
//!
//! The reference text is followed token by token. Ours must be the same, except where llama.cpp's own two
//! best logits lie within 0.1: there its second choice counts too (its variants differ by as much).

use serde_json::Value as Json;
use sparkinfer::cpu::{CpuEngine, CpuOptions};
use sparkinfer::engine::Engine;
use sparkinfer::model::ModelSpec;
use sparkinfer::sample::argmax;
use sparkinfer::tokenizer::{EncodeOptions, Tokenizer};
use sparkinfer_gguf::Gguf;
use sparkinfer_tests::assets::Asset;

/// Largest gap between the reference's two best logits at which the second counts.
const NEAR_TIE: f64 = 0.1;

fn reference(asset: &str) -> Json {
    let json: Json = serde_json::from_str(include_str!("../data/real_models.json")).unwrap();
    let models = json["models"].as_array().unwrap();
    models.iter().find(|model| model["asset"] == asset).unwrap().clone()
}

fn ids(json: &Json) -> Vec<u32> {
    json.as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

/// Follows one prompt's reference text. Returns how often the second choice was taken.
fn follow(engine: &mut dyn Engine, tokenizer: &Tokenizer, prompt: &Json) -> usize {
    let text = prompt["prompt"].as_str().unwrap();
    let options = EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    let tokens = tokenizer.encode(text, options).unwrap();
    assert_eq!(tokens.len() as u64, prompt["prompt_tokens"].as_u64().unwrap(), "{text}");
    let (expected, second) = (ids(&prompt["ids"]), ids(&prompt["second"]));
    assert_eq!(expected.len(), 32);
    engine.reset();
    let (mut found, mut seconds) = (argmax(engine.prefill(&tokens).unwrap()), 0);
    for (step, &token) in expected.iter().enumerate() {
        if found != token {
            let gap = prompt["gap"][step].as_f64().unwrap();
            assert!(
                gap < NEAR_TIE && found == second[step],
                "{text:?}, step {step}: {found}, not {token}, gap {gap}"
            );
            seconds += 1;
        }
        found = argmax(engine.decode(token).unwrap());
    }
    seconds
}

fn check(asset: &str, options: &CpuOptions) {
    let Some(path) = Asset::named(asset).unwrap().get() else {
        return;
    };
    let gguf = Gguf::open(&path).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let mut engine = CpuEngine::new(&gguf, &ModelSpec::from_gguf(&gguf).unwrap(), options).unwrap();
    let reference = reference(asset);
    let prompts = reference["prompts"].as_array().unwrap();
    assert!(prompts.len() >= 6);
    let seconds: usize = prompts
        .iter()
        .map(|prompt| follow(&mut engine, &tokenizer, prompt))
        .sum();
    println!(
        "{asset}: {} prompts of 32 tokens, {seconds} near ties fell the other way",
        prompts.len()
    );
}

#[test]
fn smollm2() {
    check("smollm2", &CpuOptions::practical(128));
}

#[test]
fn qwen25() {
    check("qwen25", &CpuOptions::practical(128));
}

#[test]
fn gemma3() {
    check("gemma3", &CpuOptions::practical(128));
}
