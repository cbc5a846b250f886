//! Steps of several sequences in the emulator.

use crate::cpu::{CpuEngine, CpuOptions};
use crate::engine::{Engine, EngineError, Sequence};
use crate::gpu::emulated::Emulated;
use crate::gpu::tests::{PROMPT, bundled, divergence};
use crate::gpu::{GpuEngine, GpuOptions, needs};
use crate::sample::argmax;

/// What is common to the sequences: a page and a part of one.
fn prefix() -> Vec<u32> {
    (0..70).map(|i| PROMPT[i * i % 14]).collect()
}

/// Where the sequences leave the prefix, and what follows: one within the shared page, one at its end, one before.
const FORKS: [usize; 3] = [70, 66, 3];
const TEXTS: [&[u32]; 3] = [&[36, 1783, 3628, 11], &[292, 549], &[443, 11, 502]];

/// The forks numbered `which`, of a sequence that is gone.
fn forks(engine: &mut dyn Engine, which: &[usize]) -> Vec<Sequence> {
    engine.reset();
    engine.prefill(&prefix()).unwrap();
    let forks = which.iter().map(|&i| engine.fork(FORKS[i]).unwrap()).collect();
    engine.reset();
    forks
}

/// The logits behind each token of the texts numbered `which`, in steps of all that have not ended.
fn together(engine: &mut dyn Engine, which: &[usize]) -> Vec<Vec<Vec<f32>>> {
    let (mut sequences, mut going) = (forks(engine, which), (0..which.len()).collect::<Vec<_>>());
    let mut all = vec![Vec::new(); which.len()];
    let mut step = 0;
    loop {
        while let Some(ended) = going.iter().position(|&i| TEXTS[which[i]].len() == step) {
            going.remove(ended);
            sequences.remove(ended);
        }
        if going.is_empty() {
            return all;
        }
        let tokens: Vec<u32> = going.iter().map(|&i| TEXTS[which[i]][step]).collect();
        let mut keep = |i: usize, logits: &[f32]| {
            all[going[i]].push(logits.to_vec());
            Ok(())
        };
        engine.logits_of_many(&mut sequences, &tokens, &mut keep).unwrap();
        step += 1;
    }
}

fn engine(sequences: usize) -> GpuEngine<Emulated> {
    let (gguf, spec) = bundled();
    let options = GpuOptions {
        sequences,
        ..GpuOptions::practical(192)
    };
    GpuEngine::load_with(Emulated::default(), &gguf, &spec, &options, &mut |_, _| {}).unwrap()
}

#[test]
fn a_sequence_does_not_notice_the_others() {
    let mut gpu = engine(2);
    let pages = gpu.free_pages();
    assert_eq!((gpu.sequences(), pages), (2, 6));
    // Three go in steps of two and one, then of two.
    let all = together(&mut gpu, &[0, 1, 2]);
    assert_eq!(gpu.free_pages(), pages);
    for (i, logits) in all.iter().enumerate() {
        assert_eq!(together(&mut gpu, &[i])[0], *logits, "alone");
        // A step for one sequence differs by rounding alone.
        gpu.reset();
        gpu.prefill(&prefix()).unwrap();
        gpu.truncate(FORKS[i]);
        for (&token, several) in TEXTS[i].iter().zip(logits) {
            let one = gpu.decode(token).unwrap();
            let divergence = divergence(one, several);
            assert!(divergence < 1e-5, "{divergence}");
            assert_eq!(argmax(one), argmax(several));
        }
    }
    assert_eq!(together(&mut gpu, &[2, 0])[1], all[0], "beside another");
}

#[test]
fn the_likeliest_tokens_are_those_of_the_logits() {
    let mut gpu = engine(3);
    let expected: Vec<u32> = together(&mut gpu, &[0, 1, 2])
        .iter()
        .map(|all| argmax(&all[0]))
        .collect();
    let mut tokens = TEXTS.map(|text| text[0]);
    let mut sequences = forks(&mut gpu, &[0, 1, 2]);
    gpu.next_of_many(&mut sequences, &mut tokens).unwrap();
    assert_eq!(tokens.as_slice(), expected);
    let (gguf, spec) = bundled();
    let mut cpu = CpuEngine::new(&gguf, &spec, &CpuOptions::practical(192)).unwrap();
    let mut tokens = TEXTS.map(|text| text[0]);
    let mut sequences = forks(&mut cpu, &[0, 1, 2]);
    cpu.next_of_many(&mut sequences, &mut tokens).unwrap();
    assert_eq!(tokens.as_slice(), expected);
}

/// The tokens of steps that the engine has on the way before they are asked for, and of those where something else is:
/// another token, fewer sequences, the same ones after one of them was the current one.
#[test]
fn steps_on_the_way_are_taken_only_as_they_are() {
    let mut gpu = engine(2);
    let mut run = |ahead: bool| {
        let (mut sequences, mut tokens) = (forks(&mut gpu, &[1, 2]), vec![292, 443]);
        let mut all = Vec::new();
        for step in 0..5 {
            match step {
                2 => tokens[1] = 11,
                3 => {
                    let last = gpu.switch(sequences.remove(1)).unwrap();
                    gpu.truncate(FORKS[2] + 2);
                    sequences.push(gpu.switch(last).unwrap());
                }
                4 => (sequences, tokens) = (sequences.drain(1..).collect(), tokens[1..].to_vec()),
                _ => {}
            }
            if ahead {
                gpu.next_of_many(&mut sequences, &mut tokens).unwrap();
            } else {
                let last = tokens.clone();
                let mut choose = |i: usize, logits: &[f32]| {
                    tokens[i] = argmax(logits);
                    Ok(())
                };
                gpu.logits_of_many(&mut sequences, &last, &mut choose).unwrap();
            }
            all.push(tokens.clone());
        }
        all
    };
    let (expected, tokens) = (run(false), run(true));
    assert_eq!(tokens, expected);
}

#[test]
fn what_cannot_be_appended_changes_nothing() {
    let mut gpu = engine(2);
    let mut sequences = forks(&mut gpu, &[1, 2]);
    let mut refused = |sequences: &mut [Sequence], tokens: &mut [u32]| gpu.next_of_many(sequences, tokens).unwrap_err();
    assert!(matches!(refused(&mut sequences, &mut [1]), EngineError::Invalid(_)));
    let bad = refused(&mut sequences, &mut [1, 1 << 20]);
    assert!(matches!(bad, EngineError::BadToken { .. }));
    let foreign = refused(&mut [engine(1).fork(0).unwrap()], &mut [1]);
    assert!(foreign.to_string().contains("another engine"), "{foreign}");
    let last = gpu.switch(sequences.remove(0)).unwrap();
    assert_eq!(gpu.position(), FORKS[1]);
    gpu.prefill(&vec![1; 192 - FORKS[1]]).unwrap();
    let full = gpu.switch(last).unwrap();
    let error = gpu.next_of_many(&mut [full], &mut [1]).unwrap_err();
    assert!(matches!(error, EngineError::ContextFull { .. }));
}

#[test]
fn room_for_several_is_counted() {
    let (_, spec) = bundled();
    let of = |sequences| {
        let options = GpuOptions {
            sequences,
            ..GpuOptions::practical(192)
        };
        needs(&spec, &options, 4).unwrap()
    };
    let (one, four) = (of(1), of(4));
    assert_eq!((four.weights, four.cache), (one.weights, 4 * one.cache));
    assert!(four.scratch > one.scratch);
}
