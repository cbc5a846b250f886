//! The engine in the emulator, against the CPU engine and llama.cpp's goldens.

use std::ops::ControlFlow;

use sparkinfer_gguf::Gguf;

use super::emulated::Emulated;
use super::{GpuEngine, GpuOptions, needs};
use crate::cpu::{CpuEngine, CpuOptions};
use crate::engine::{Engine, generate_on_host};
use crate::model::{KvType, ModelSpec};
use crate::sample::{SampleOptions, Sampler};
use crate::tuning::{CHOICES, Tuning};

/// "Emma Woodhouse, handsome, clever, and rich," and llama.cpp's first greedy tokens behind it.
pub(super) const PROMPT: [u32; 14] = [36, 1783, 3628, 11, 1956, 502, 11, 1782, 333, 11, 292, 549, 443, 11];
const GREEDY: [u32; 3] = [292, 705, 961];

pub(super) fn bundled() -> (Gguf, ModelSpec) {
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

/// With the same type of cache on both sides what is left is the activations' precision, and values of the cache that
/// round another way.
#[test]
fn every_type_of_cache_gives_the_reference_s_tokens() {
    let (gguf, spec) = bundled();
    for (kv, allowed) in [(KvType::F16, 1e-5), (KvType::Bf16, 1e-4), (KvType::Q8_0, 1e-4)] {
        let options = CpuOptions {
            kv,
            ..CpuOptions::reference(128)
        };
        let mut cpu = CpuEngine::new(&gguf, &spec, &options).unwrap();
        let options = GpuOptions {
            kv,
            ..GpuOptions::practical(128)
        };
        let mut gpu = GpuEngine::load_with(Emulated::default(), &gguf, &spec, &options, &mut |_, _| {}).unwrap();
        assert_eq!(gpu.description().kv_bytes, spec.memory(kv).kv_per_token * 128);
        let mut tokens = PROMPT.to_vec();
        for greedy in GREEDY {
            let cached = gpu.position();
            let expected = cpu.prefill(&tokens[cached..]).unwrap();
            let logits = gpu.prefill(&tokens[cached..]).unwrap();
            let divergence = divergence(expected, logits);
            assert!(divergence < allowed, "{kv}: {divergence}");
            let mut sampler = Sampler::new(SampleOptions::default());
            assert_eq!(sampler.sample(logits), greedy, "{kv}");
            tokens.push(greedy);
        }
    }
}

#[test]
fn a_gpu_has_no_cache_of_f32() {
    let (_, spec) = bundled();
    let options = GpuOptions {
        kv: KvType::F32,
        ..GpuOptions::practical(128)
    };
    assert!(needs(&spec, &options, 4).unwrap_err().0.contains("--kv-type"));
}

/// In f32 with the reference's own cache type, what is left is the order of sums.
#[test]
fn the_reference_arithmetic_is_that_of_the_cpu() {
    let (gguf, spec) = bundled();
    let options = CpuOptions {
        kv: KvType::F16,
        ..CpuOptions::reference(64)
    };
    let mut cpu = CpuEngine::new(&gguf, &spec, &options).unwrap();
    let reference = GpuOptions::reference(64);
    let mut gpu = GpuEngine::load_with(Emulated::default(), &gguf, &spec, &reference, &mut |_, _| {}).unwrap();
    let mut tokens = PROMPT.to_vec();
    for greedy in GREEDY {
        let cached = gpu.position();
        let expected = cpu.prefill(&tokens[cached..]).unwrap().to_vec();
        let logits = gpu.prefill(&tokens[cached..]).unwrap();
        let difference = largest_difference(logits, &expected);
        assert!(difference < 2e-3, "logits differ by {difference}");
        let mut sampler = Sampler::new(SampleOptions::default());
        assert_eq!(sampler.sample(logits), greedy);
        tokens.push(greedy);
    }
}

/// The distribution behind `logits`.
fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = logits.iter().map(|l| f64::from(l - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|w| w / sum).collect()
}

/// The KL divergence of the distribution behind `got` from that behind `want`.
pub(super) fn divergence(want: &[f32], got: &[f32]) -> f64 {
    assert_eq!(want.len(), got.len());
    softmax(want)
        .iter()
        .zip(softmax(got))
        .map(|(p, q)| if *p == 0.0 { 0.0 } else { p * (p / q).ln() })
        .sum()
}

/// The logits behind the tokens from number `from` on.
fn logits(engine: &mut dyn Engine, tokens: &[u32], from: usize) -> Vec<Vec<f32>> {
    let mut all = Vec::new();
    let mut keep = |_: usize, logits: &[f32]| {
        all.push(logits.to_vec());
        Ok(())
    };
    engine.logits_of_all(tokens, from, &mut keep).unwrap();
    all
}

/// A page ends in the prompt, and a chunk within a page.
#[test]
fn a_prompt_in_chunks_gives_the_logits_of_steps_and_of_the_reference() {
    let (gguf, spec) = bundled();
    let tokens: Vec<u32> = (0..70).map(|i| PROMPT[i * i % 14]).collect();
    let (whole, from) = (65, 62);
    let engine = |chunk: usize| {
        let mut engine = load(&gguf, &spec);
        engine.prompt().expect("the kernels take the model").limit(chunk);
        engine
    };
    let steps = logits(&mut engine(1), &tokens, from);
    let got = engine(128).prefill(&tokens[..whole]).unwrap().to_vec();
    assert!(divergence(&steps[whole - 1 - from], &got) < 1e-5, "all at once");
    let mut gpu = engine(37);
    for (i, got) in logits(&mut gpu, &tokens, from).iter().enumerate() {
        assert!(divergence(&steps[i], got) < 1e-5, "token {}", from + i);
    }
    let mut cpu = CpuEngine::new(&gguf, &spec, &CpuOptions::reference(128)).unwrap();
    cpu.prefill(&tokens).unwrap();
    assert_eq!(gpu.position(), tokens.len());
    let expected = cpu.decode(tokens[0]).unwrap().to_vec();
    let got = gpu.decode(tokens[0]).unwrap();
    assert!(divergence(&expected, got) < 1e-5, "a step behind the prompt");
}

/// Choices with so many steps in a recording.
fn recording(graph_steps: u32) -> Tuning {
    Tuning {
        graph_steps,
        ..Tuning::default()
    }
}

/// The tokens of a run on `engine` behind `prompt`, and the sampler behind it.
fn sampled(engine: &mut dyn Engine, prompt: &[u32], options: &SampleOptions, count: usize) -> (Vec<u32>, Sampler) {
    let (mut tokens, mut sampler) = (Vec::new(), Sampler::new(options.clone()));
    let given = engine.generate(prompt, &mut sampler, count, &mut |token| {
        tokens.push(token);
        ControlFlow::Continue(())
    });
    assert_eq!(given.unwrap(), tokens.len());
    (tokens, sampler)
}

/// Settings of chance, and greedy ones that are more than the highest logit.
fn settings() -> [SampleOptions; 3] {
    let warm = SampleOptions {
        temperature: 1.5,
        min_p: 0.0,
        top_p: 1.0,
        seed: 3,
        ..SampleOptions::default()
    };
    let penalised = SampleOptions {
        repeat_penalty: 1.8,
        repeat_last_n: 5,
        suppress: vec![292],
        ..warm.clone()
    };
    let greedy = SampleOptions {
        temperature: 0.0,
        ..penalised.clone()
    };
    [warm, penalised, greedy]
}

#[test]
fn the_device_samples_what_the_host_would() {
    let (gguf, spec) = bundled();
    let mut gpu = load(&gguf, &spec);
    for options in settings() {
        // The second run begins in the middle of the random sequence, and of the steps.
        let (mut tokens, mut sampler) = (Vec::new(), Sampler::new(options.clone()));
        let (mut expected, mut other) = (Vec::new(), Sampler::new(options.clone()));
        for prompt in [&PROMPT[..3], &PROMPT[3..5]] {
            let depth = gpu.position();
            let given = gpu.generate(prompt, &mut sampler, 5, &mut |token| {
                tokens.push(token);
                ControlFlow::Continue(())
            });
            assert_eq!(given.unwrap(), 5);
            gpu.truncate(depth);
            let given = generate_on_host(&mut gpu, prompt, &mut other, 5, &mut |token| {
                expected.push(token);
                ControlFlow::Continue(())
            });
            assert_eq!(given.unwrap(), 5);
        }
        assert_eq!(tokens, expected, "{options:?}");
        assert_eq!(sampler.step(), other.step());
        assert!(sampler.recent().eq(other.recent()));
        gpu.reset();
    }
}

#[test]
fn steps_in_one_recording_are_steps() {
    let (gguf, spec) = bundled();
    let mut gpu = load(&gguf, &spec);
    for options in [SampleOptions::default(), settings()[1].clone()] {
        let (expected, _) = sampled(&mut gpu, &PROMPT[..2], &options, 8);
        gpu.retune(recording(3)).unwrap();
        gpu.reset();
        let (tokens, _) = sampled(&mut gpu, &PROMPT[..2], &options, 8);
        assert_eq!(tokens, expected);
        assert_eq!(gpu.position(), 2 + 8 - 1);
        // A stop in the middle of a recording: the steps behind it do not count.
        gpu.reset();
        let mut seen = Vec::new();
        let mut sampler = Sampler::new(options);
        let given = gpu.generate(&PROMPT[..2], &mut sampler, 8, &mut |token| {
            seen.push(token);
            if seen.len() == 3 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert_eq!(given.unwrap(), 3);
        assert_eq!((seen.as_slice(), gpu.position()), (&expected[..3], 2 + 3 - 1));
        gpu.reset();
        gpu.retune(recording(1)).unwrap();
    }
}

/// Choices of the general path alone.
const GENERAL: [&str; 2] = ["row_blocks", "tile_warps"];

/// The smallest and the largest that is allowed, one choice at a time, on an engine that was loaded with room
/// for the largest chunk.
#[test]
fn every_choice_of_launches_gives_the_same_tokens() {
    let (gguf, spec) = bundled();
    let options = GpuOptions {
        tuning: Tuning {
            prompt_chunk: 64,
            ..Tuning::default()
        },
        ..GpuOptions::practical(128)
    };
    let mut gpu = GpuEngine::load_with(Emulated::default(), &gguf, &spec, &options, &mut |_, _| {}).unwrap();
    let greedy = SampleOptions::default();
    for choice in CHOICES.iter().filter(|choice| !GENERAL.contains(&choice.name)) {
        let values = [choice.range.start(), choice.range.end()];
        for &value in values {
            let tuning = choice.set(Tuning::default(), value);
            gpu.retune(tuning).unwrap();
            gpu.reset();
            let (tokens, _) = sampled(&mut gpu, &PROMPT, &greedy, GREEDY.len());
            assert_eq!(
                (tokens.as_slice(), gpu.tuning()),
                (&GREEDY[..], Some(tuning)),
                "{} {value}",
                choice.name
            );
        }
    }
}

/// Cached tokens stay when launches are cut otherwise, and a tuning that no launch can be made from changes nothing.
#[test]
fn an_engine_is_retuned_in_the_middle_of_a_text() {
    let (gguf, spec) = bundled();
    let mut gpu = load(&gguf, &spec);
    let greedy = SampleOptions::default();
    let (first, _) = sampled(&mut gpu, &PROMPT, &greedy, 1);
    let tuning = Tuning {
        attention_splits: 3,
        attention_warps: 3,
        attention_least_chunks: 1,
        head_blocks: 1,
        graph_steps: 2,
        ..Tuning::default()
    };
    gpu.retune(tuning).unwrap();
    let error = gpu.retune(recording(0)).unwrap_err().to_string();
    assert!(error.contains("graph_steps is 0"), "{error}");
    let (rest, _) = sampled(&mut gpu, &first, &greedy, GREEDY.len() - 1);
    assert_eq!(
        ([first, rest].concat().as_slice(), gpu.tuning()),
        (&GREEDY[..], Some(tuning))
    );
}

/// Blocks of attention a key head that the next step is launched with.
fn splits(gpu: &GpuEngine<Emulated>) -> u32 {
    let stage = gpu.plan().body.stages.iter().find(|stage| stage.name == "attention");
    stage.unwrap().launch.config().grid[0]
}

/// An engine on `device` for 320 tokens, with launches cut as `tuning` says.
fn tuned(device: Emulated, gguf: &Gguf, spec: &ModelSpec, tuning: Tuning) -> GpuEngine<Emulated> {
    let options = GpuOptions {
        tuning,
        ..GpuOptions::practical(320)
    };
    GpuEngine::load_with(device, gguf, spec, &options, &mut |_, _| {}).unwrap()
}

/// Steps have no blocks of attention that would have nothing to do, as far as one split has all the work, or eight have: the
/// same bits come out as with no more blocks at all, and behind their reach the same as with many more.
#[test]
fn the_first_steps_have_fewer_blocks_and_the_same_logits() {
    // Twice as deep as each split has one chunk.
    const REACH: usize = 2 * 8 * 16;
    let (gguf, spec) = bundled();
    let prompt: Vec<u32> = (0..REACH - 2).map(|i| PROMPT[i * i % 14]).collect();
    let [few, some, many] = [8, 32, 40].map(|attention_splits| {
        let tuning = Tuning {
            attention_splits,
            attention_least_chunks: 1,
            graph_steps: 2,
            ..Tuning::default()
        };
        let mut gpu = tuned(Emulated::default(), &gguf, &spec, tuning);
        let (tokens, _) = sampled(&mut gpu, &prompt, &SampleOptions::default(), 6);
        gpu.truncate(prompt.len());
        let steps: Vec<_> = tokens
            .iter()
            .map(|&token| (splits(&gpu), gpu.decode(token).unwrap().to_vec()))
            .collect();
        gpu.truncate(16);
        assert_eq!(splits(&gpu), 1, "one split has all the work");
        (attention_splits, tokens, steps)
    });
    for (most, tokens, steps) in [&few, &some, &many] {
        assert_eq!(*tokens, many.1);
        for (i, (blocks, logits)) in steps.iter().enumerate() {
            let shallow = prompt.len() + i <= REACH;
            assert_eq!(*blocks, if shallow { 8 } else { *most }, "step {i} of {most}");
            let same = if shallow || *most > 8 { &many } else { &few };
            assert!(*logits == same.2[i].1, "step {i} of {most}");
        }
    }
}

/// Behind the reach of one cluster a GPU that holds several has as many a key head, and the logits are those of splits that
/// meet in memory but for the rounding of sums.
#[test]
fn deep_steps_have_several_clusters_a_key_head() {
    let (gguf, spec) = bundled();
    let prompt: Vec<u32> = (0..2 * 8 * 16 + 1).map(|i| PROMPT[i * i % 14]).collect();
    let [parts, whole] = [0, 16].map(|attention_splits| {
        let tuning = Tuning {
            attention_splits,
            attention_least_chunks: 1,
            ..Tuning::default()
        };
        let mut gpu = tuned(Emulated::of_size(48), &gguf, &spec, tuning);
        gpu.prefill(&prompt).unwrap();
        let stage = gpu.plan().body.stages.iter().find(|stage| stage.name == "attention");
        let config = *stage.unwrap().launch.config();
        ((config.grid[0], config.cluster), gpu.decode(7).unwrap().to_vec())
    });
    assert_eq!((parts.0, whole.0), ((16, 8), (16, 1)));
    let difference = largest_difference(&parts.1, &whole.1);
    assert!(difference < 1e-3, "logits differ by {difference}");
    assert!(difference > 0.0, "both did the same");
}

/// Two texts from one beginning, whose last page is shared, run in turns: each is as if it were alone.
#[test]
fn forked_sequences_go_on_as_if_alone() {
    let (gguf, spec) = bundled();
    let greedy = SampleOptions::default();
    let prefix: Vec<u32> = (0..70).map(|i| PROMPT[i * i % 14]).collect();
    let (ends, count) = ([&PROMPT[..3], &PROMPT[5..9]], 4);
    let options = CpuOptions::practical(192);
    let mut cpu = CpuEngine::new(&gguf, &spec, &options).unwrap();
    let mut gpu = GpuEngine::load(Emulated::default(), &gguf, &spec, 192, &mut |_, _| {}).unwrap();
    let pages = gpu.free_pages();
    for engine in [&mut cpu as &mut dyn Engine, &mut gpu] {
        let alone = ends.map(|end| {
            engine.reset();
            engine.prefill(&prefix).unwrap();
            let first = sampled(engine, end, &greedy, count).0;
            [first, sampled(engine, &end[..1], &greedy, count).0].concat()
        });
        engine.truncate(prefix.len());
        let mut texts = [Vec::new(), Vec::new()];
        let mut other = engine.fork(usize::MAX).unwrap();
        for length in [usize::MAX, 1] {
            for (end, text) in ends.iter().zip(&mut texts) {
                let end = &end[..length.min(end.len())];
                text.extend(sampled(engine, end, &greedy, count).0);
                other = engine.switch(other).unwrap();
            }
        }
        assert_eq!(texts, alone, "{}", engine.description().device);
        assert!(engine.fork(3).is_ok_and(|fork| {
            let last = engine.switch(fork).unwrap();
            engine.position() == 3 && engine.switch(last).is_ok()
        }));
        let foreign = CpuEngine::new(&gguf, &spec, &options).unwrap().fork(0).unwrap();
        assert!(engine.switch(foreign).is_err());
        drop(other);
        engine.reset();
    }
    assert_eq!(gpu.free_pages(), pages);
}

/// The bundled model with an embedding of `token` that is no number.
fn damaged(token: u32) -> Gguf {
    let file = crate::bundled::model().unwrap();
    let gguf = Gguf::from_bytes(file).unwrap();
    let table = gguf.require_tensor("token_embd.weight").unwrap().data;
    let row = table.len() / 4096;
    let start = table.as_ptr() as usize - file.as_ptr() as usize + token as usize * row;
    let mut bytes = file.to_vec();
    bytes[start..start + row].fill(0xff);
    Gguf::from_vec("damaged", bytes).unwrap()
}

#[test]
fn logits_without_a_number_end_a_run() {
    let (gguf, spec) = bundled();
    for options in settings().iter().chain([&SampleOptions::default()]) {
        let first = sampled(&mut load(&gguf, &spec), &PROMPT[..2], options, 1).0[0];
        let (emulated, exact) = (Emulated::default(), GpuOptions::reference(64));
        let mut gpu = GpuEngine::load_with(emulated, &damaged(first), &spec, &exact, &mut |_, _| {}).unwrap();
        let (mut seen, mut sampler) = (Vec::new(), Sampler::new(options.clone()));
        let error = gpu.generate(&PROMPT[..2], &mut sampler, 9, &mut |token| {
            seen.push(token);
            ControlFlow::Continue(())
        });
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("none of the model's logits is a number"), "{error}");
        assert_eq!((seen.as_slice(), gpu.position()), (&[first][..], 2));
    }
}

#[test]
fn what_is_needed_is_what_is_taken() {
    let (gguf, spec) = bundled();
    let needs = needs(&spec, &GpuOptions::practical(128), 4).unwrap();
    let engine = load(&gguf, &spec);
    assert_eq!(needs.weights, engine.description().weight_bytes);
    assert_eq!(needs.cache, spec.memory(KvType::F16).kv_per_token * 128);
    assert!(needs.scratch < 8 << 20, "{}", needs.scratch);
}
