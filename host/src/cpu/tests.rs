//! The bundled model against the reference outputs in `tests/data/golden.json`, and against itself.

use serde_json::Value as Json;
use sparkinfer_gguf::Gguf;

use super::{CpuEngine, CpuOptions, Numerics};
use crate::engine::{Engine, EngineError};
use crate::model::{KvType, ModelSpec};
use crate::perplexity::{Perplexity, perplexity};
use crate::sample::argmax;
use crate::tokenizer::EncodeOptions;

/// A prompt of the golden file.
struct Golden {
    prompt: Vec<u32>,
    greedy: Vec<u32>,
    exact_first_top5: Vec<(u32, f32)>,
}

fn goldens() -> Vec<Golden> {
    let json: Json = serde_json::from_str(include_str!("../../../tests/data/golden.json")).unwrap();
    let ids = |json: &Json| {
        json.as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap() as u32)
            .collect()
    };
    let pair = |json: &Json| (json[0].as_u64().unwrap() as u32, json[1].as_f64().unwrap() as f32);
    let prompts = json["prompts"].as_array().unwrap().iter();
    prompts
        .map(|prompt| Golden {
            prompt: ids(&prompt["prompt_ids"]),
            greedy: ids(&prompt["greedy_ids"]),
            exact_first_top5: prompt["exact_first_top5"]
                .as_array()
                .unwrap()
                .iter()
                .map(pair)
                .collect(),
        })
        .collect()
}

fn bundled() -> Gguf {
    Gguf::from_bytes(crate::bundled::model().unwrap()).unwrap()
}

fn engine<'m>(gguf: &'m Gguf, options: &CpuOptions) -> CpuEngine<'m> {
    CpuEngine::new(gguf, &ModelSpec::from_gguf(gguf).unwrap(), options).unwrap()
}

fn greedy(engine: &mut dyn Engine, prompt: &[u32], n: usize) -> Vec<u32> {
    engine.reset();
    let mut token = argmax(engine.prefill(prompt).unwrap());
    let mut ids = vec![token];
    while ids.len() < n {
        token = argmax(engine.decode(token).unwrap());
        ids.push(token);
    }
    ids
}

#[test]
fn reference_mode_gives_the_golden_text_and_logits() {
    let gguf = bundled();
    let mut engine = engine(&gguf, &CpuOptions::reference(64));
    for golden in goldens() {
        engine.reset();
        let logits = engine.prefill(&golden.prompt).unwrap().to_vec();
        for (id, expected) in golden.exact_first_top5 {
            let found = logits[id as usize];
            assert!(
                (found - expected).abs() < 1e-3,
                "token {id}: {found}, expected {expected}"
            );
        }
        assert_eq!(greedy(&mut engine, &golden.prompt, 32), golden.greedy);
    }
}

#[test]
fn practical_mode_gives_the_golden_text() {
    let gguf = bundled();
    let mut engine = engine(&gguf, &CpuOptions::practical(64));
    for golden in goldens() {
        assert_eq!(greedy(&mut engine, &golden.prompt, 32), golden.greedy);
    }
}

/// A long prompt, so that batches, tiles and cache blocks have ends in odd places.
fn long_prompt() -> Vec<u32> {
    goldens()
        .iter()
        .flat_map(|g| [g.prompt.clone(), g.greedy.clone()].concat())
        .cycle()
        .take(300)
        .collect()
}

fn all_logits(engine: &mut CpuEngine, pieces: &[&[u32]]) -> Vec<f32> {
    let mut all = Vec::new();
    for tokens in pieces {
        let mut each = |_: usize, logits: &[f32]| {
            all.extend_from_slice(logits);
            Ok(())
        };
        engine.logits_of_all(tokens, 0, &mut each).unwrap();
    }
    all
}

#[test]
fn results_depend_on_neither_threads_nor_cuts() {
    let (gguf, prompt) = (bundled(), long_prompt());
    for base in [CpuOptions::practical(300), CpuOptions::reference(300)] {
        let mut one = engine(
            &gguf,
            &CpuOptions {
                threads: 1,
                ..base.clone()
            },
        );
        let mut three = engine(&gguf, &CpuOptions { threads: 3, ..base });
        let whole = all_logits(&mut one, &[&prompt]);
        let pieces = [
            &prompt[..1],
            &prompt[1..2],
            &prompt[2..70],
            &prompt[70..71],
            &prompt[71..],
        ];
        assert!(whole == all_logits(&mut three, &pieces));
        let vocab = one.vocab_size();
        one.truncate(40);
        assert_eq!(one.prefill(&prompt[40..50]).unwrap(), &whole[49 * vocab..50 * vocab]);
        assert_eq!(one.decode(prompt[50]).unwrap(), &whole[50 * vocab..51 * vocab]);
    }
}

#[test]
fn logits_are_given_from_where_they_are_asked_for() {
    let (gguf, prompt) = (bundled(), long_prompt());
    let mut engine = engine(&gguf, &CpuOptions::practical(300));
    let whole = all_logits(&mut engine, &[&prompt]);
    engine.reset();
    let mut seen = Vec::new();
    let vocab = engine.vocab_size();
    let mut each = |i: usize, logits: &[f32]| {
        assert_eq!(logits, &whole[i * vocab..][..vocab]);
        seen.push(i);
        Ok(())
    };
    engine.logits_of_all(&prompt, 270, &mut each).unwrap();
    assert_eq!(seen, (270..300).collect::<Vec<_>>());
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let gguf = bundled();
    let mut engine = engine(&gguf, &CpuOptions::practical(4));
    engine.prefill(&[1, 2, 3]).unwrap();
    assert!(matches!(
        engine.prefill(&[1, 2]),
        Err(EngineError::ContextFull {
            position: 3,
            new: 2,
            context: 4
        })
    ));
    assert!(matches!(
        engine.decode(4096),
        Err(EngineError::BadToken {
            token: 4096,
            vocab_size: 4096
        })
    ));
    assert_eq!(engine.position(), 3);
    engine.decode(4).unwrap();
    assert!(engine.decode(5).is_err());
}

#[test]
fn absurd_contexts_are_refused_with_their_size() {
    let gguf = bundled();
    let options = CpuOptions {
        kv: KvType::F32,
        numerics: Numerics::Practical,
        ..CpuOptions::practical(1 << 50)
    };
    let error = CpuEngine::new(&gguf, &ModelSpec::from_gguf(&gguf).unwrap(), &options)
        .err()
        .unwrap();
    assert!(error.to_string().contains("lower --ctx"), "{error}");
}

/// The held-out text's ids by the bundled model's tokenizer.
fn held_out(gguf: &Gguf) -> Vec<u32> {
    let tokenizer = crate::tokenizer::Tokenizer::from_gguf(gguf).unwrap();
    let text = include_str!("../../../tests/data/heldout.txt");
    tokenizer
        .encode(
            text,
            EncodeOptions {
                add_special: false,
                parse_special: false,
            },
        )
        .unwrap()
}

/// Perplexity after each of the first `windows` windows of 512.
fn running_perplexity(options: &CpuOptions, windows: usize) -> Vec<Perplexity> {
    let gguf = bundled();
    let tokens = held_out(&gguf);
    assert_eq!(tokens.len(), 116_313);
    let mut engine = engine(&gguf, options);
    let mut running = Vec::new();
    let text = &tokens[..tokens.len().min(512 * windows)];
    perplexity(&mut engine, text, 512, None, &mut |p| running.push(*p)).unwrap();
    running
}

/// Values of this engine, kept so that a change shows; the test of the whole text has others' values.
#[test]
fn perplexity_of_the_first_windows() {
    for (options, expected, tolerance) in [
        (CpuOptions::reference(512), [29.347130, 26.323596], 1e-3),
        (CpuOptions::practical(512), [29.213952, 26.219954], 5e-2),
    ] {
        for (found, expected) in running_perplexity(&options, 2).iter().zip(expected) {
            assert!(
                (found.value - expected).abs() < tolerance,
                "{:?}: {found:?}",
                options.numerics
            );
        }
    }
}

#[test]
#[ignore = "the whole held-out text takes minutes"]
fn perplexity_of_the_whole_held_out_text() {
    for (options, expected, tolerance) in [
        (CpuOptions::reference(512), 16.415, 0.01),
        (CpuOptions::practical(512), 16.42, 0.1),
    ] {
        let start = std::time::Instant::now();
        let running = running_perplexity(&options, usize::MAX);
        let last = running[running.len() - 1];
        println!(
            "{:?}: {last:?} in {:?}; first windows {:?}",
            options.numerics,
            start.elapsed(),
            &running[..3]
        );
        assert_eq!((last.windows, last.tokens), (227, 57_885));
        assert!((last.value - expected).abs() < tolerance, "{last:?}");
    }
}
