//! Whole models on a device against the CPU's f32 reference: small synthetic ones of every architecture and many types.
//!
//! Each is run token by token over more than a page of the cache, in both arithmetics of the GPU engine; then the
//! tokens that the device chooses by itself are compared with those chosen on the host from the same engine's logits, and
//! steps of several sequences with steps of each.

use anyhow::{Context, Result, ensure};
use sparkinfer::cpu::{CpuEngine, CpuOptions};
use sparkinfer::engine::{Engine, generate_on_host};
use sparkinfer::gpu::{Arithmetic, Backend, GpuEngine, GpuOptions};
use sparkinfer::model::{KvType, ModelSpec};
use sparkinfer::sample::{SampleOptions, Sampler};
use sparkinfer::synth::{Mix, Preset, Synth, SynthOptions};
use sparkinfer::tuning::Tuning;
use sparkinfer_gguf::Gguf;
use std::ops::ControlFlow;

/// A model, and how far it is run.
#[derive(Debug, Clone, Copy)]
pub struct ModelCase {
    /// Name of the preset.
    pub preset: &'static str,
    /// Types of its tensors.
    pub mix: Mix,
    /// Arithmetic of the GPU engine.
    pub arithmetic: Arithmetic,
    /// Type of both engines' caches.
    pub kv: KvType,
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Tokens that the device then chooses by itself, behind another prompt.
    pub generated: usize,
}

impl ModelCase {
    /// `model/PRESET/MIX`, with `/reference` for that arithmetic and the cache's type where it is not f16.
    pub fn name(&self) -> String {
        let end = match self.arithmetic {
            Arithmetic::Practical => "",
            Arithmetic::Reference => "/reference",
        };
        let cache = match self.kv {
            KvType::F16 => String::new(),
            kv => format!("/{kv}"),
        };
        format!("model/{}/{}{end}{cache}", self.preset, self.mix.name())
    }

    /// Error that is allowed, as a share of the largest logit: f32 sums in another order, or fused kernels, which round
    /// activations to 16 bits and queries to 11.
    fn allowed(&self) -> f32 {
        match self.arithmetic {
            Arithmetic::Practical => 2e-2,
            Arithmetic::Reference => 2e-3,
        }
    }
}

/// Every small preset with K-quants, some with other types, in both arithmetics.
pub fn cases() -> Vec<ModelCase> {
    let mut cases = Vec::new();
    for preset in Preset::all().iter().filter(|preset| preset.name.starts_with("small-")) {
        let more: &[Mix] = match preset.name {
            "small-qwen3moe" => &[Mix::Nvfp4, Mix::Mxfp4Moe, Mix::Q8_0, Mix::Iq4Xs],
            "small-qwen3" => &[Mix::Q5KM, Mix::Q2K, Mix::Q3K, Mix::Iq4Nl],
            "small-llama" => &[Mix::Q4_0, Mix::F16, Mix::Bf16, Mix::F32],
            _ => &[Mix::Q5KM],
        };
        // Past a page, and past the window where there is one.
        let tokens = 70.max(preset.parts.sliding_window as usize + 12);
        for &mix in [Mix::Q4KM].iter().chain(more) {
            let case = ModelCase {
                preset: preset.name,
                mix,
                arithmetic: Arithmetic::Practical,
                kv: KvType::F16,
                tokens,
                generated: 24,
            };
            let arithmetic = Arithmetic::Reference;
            cases.extend([case, ModelCase { arithmetic, ..case }]);
            if mix == Mix::Q4KM {
                cases.extend([KvType::Bf16, KvType::Q8_0].map(|kv| ModelCase { kv, ..case }));
            }
        }
    }
    cases
}

/// Runs a case on `backend`; says how large the worst error is.
///
/// # Errors
/// A logit that is too far from the reference's, another token, or what the device reports.
pub fn run<B: Backend>(case: &ModelCase, backend: B) -> Result<String> {
    let options = SynthOptions {
        preset: Preset::find(case.preset)?,
        mix: case.mix,
        layers: None,
        seed: 5,
        vocabulary: None,
    };
    let gguf = Gguf::from_vec(case.preset, Synth::new(&options)?.to_vec()?)?;
    let spec = ModelSpec::from_gguf(&gguf)?;
    let context = case.tokens.max(case.generated + 3).max(TEXTS[0].len() + STEPS);
    let options = GpuOptions {
        context,
        sequences: TEXTS.len(),
        kv: case.kv,
        arithmetic: case.arithmetic,
        tuning: Tuning::default(),
    };
    let mut gpu = GpuEngine::load_with(backend, &gguf, &spec, &options, &mut |_, _| {})?;
    let options = CpuOptions {
        kv: case.kv,
        ..CpuOptions::reference(context)
    };
    let mut cpu = CpuEngine::new(&gguf, &spec, &options)?;
    let tokens: Vec<u32> = (0..case.tokens as u32).map(|i| (i * i * 7 + 3 * i) % 4000).collect();
    let (got, want) = (all_logits(&mut gpu, &tokens)?, all_logits(&mut cpu, &tokens)?);
    let errors: Vec<f32> = got.iter().zip(&want).map(|(got, want)| error(got, want)).collect();
    // Experts whose logits are nearly equal may change places; that is one token's matter, not a fault.
    let excused = excused_tokens(&spec, case.tokens);
    let wrong: Vec<usize> = (0..errors.len())
        .filter(|&i| errors[i].is_nan() || errors[i] > case.allowed())
        .collect();
    ensure!(
        wrong.len() <= excused,
        "tokens {wrong:?} are wrong, the first by {:.1e} of the largest logit",
        errors[wrong[0]]
    );
    same_tokens(&mut gpu, case.generated)?;
    same_together(&mut gpu)?;
    let mut sorted = errors;
    sorted.sort_by(f32::total_cmp);
    Ok(format!(
        "{}: error {:.1e} of the largest logit, {:.1e} at most",
        gpu.description().device,
        sorted[sorted.len() / 2],
        sorted[sorted.len() - 1]
    ))
}

/// How many tokens may differ: one in twenty where there are experts, else none.
fn excused_tokens(spec: &ModelSpec, tokens: usize) -> usize {
    let experts = |part: &sparkinfer::model::Part| matches!(part.operation, sparkinfer::model::Operation::Moe(_));
    let any = spec.layers.iter().flat_map(|layer| &layer.parts).any(experts);
    if any { tokens / 20 } else { 0 }
}

fn all_logits(engine: &mut dyn Engine, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let mut all = Vec::new();
    engine.logits_of_all(tokens, 0, &mut |_, logits| {
        all.push(logits.to_vec());
        Ok(())
    })?;
    Ok(all)
}

/// The largest difference as a share of the largest logit.
fn error(got: &[f32], want: &[f32]) -> f32 {
    let largest = want.iter().fold(0f32, |most, x| most.max(x.abs()));
    let differences = got.iter().zip(want).map(|(got, want)| (got - want).abs());
    // NaN must not get lost in a maximum.
    differences.fold(0f32, |most, d| if d > most || d.is_nan() { d } else { most }) / largest
}

/// Launches cut as nobody would: numbers that divide nothing, and several steps in a recording.
const UNUSUAL: Tuning = Tuning {
    attention_splits: 5,
    attention_warps: 3,
    attention_least_chunks: 1,
    head_blocks: 1,
    row_blocks: 3,
    tile_warps: 24,
    graph_steps: 4,
    prompt_chunk: 17,
    shortest_chunk: 3,
};

/// What the device chooses by itself is what the host chooses from its logits: the likeliest tokens and drawn ones, step
/// by step and several steps at a time.
fn same_tokens(engine: &mut dyn Engine, count: usize) -> Result<()> {
    let drawn = SampleOptions {
        temperature: 1.2,
        repeat_penalty: 1.3,
        repeat_last_n: 7,
        seed: 9,
        ..SampleOptions::default()
    };
    for tuning in [Tuning::default(), UNUSUAL] {
        engine.retune(tuning)?;
        for options in [&SampleOptions::default(), &drawn] {
            let by_host = chosen(engine, options, count, true).context("on the host")?;
            let alone = chosen(engine, options, count, false)?;
            ensure!(
                alone == by_host,
                "{} steps at a time, the device chose {alone:?}, the host {by_host:?}",
                tuning.graph_steps
            );
        }
    }
    engine.retune(Tuning::default())?;
    Ok(())
}

/// Three beginnings of texts.
const TEXTS: [[u32; 3]; 3] = [[3, 1, 4], [1, 5, 9], [2, 6, 5]];

/// Steps of all of them.
const STEPS: usize = 4;

/// In steps of several sequences each gets the logits that it gets alone in such steps, bit for bit.
fn same_together(engine: &mut dyn Engine) -> Result<()> {
    let all = together(engine, &TEXTS).context("several sequences")?;
    for (text, logits) in TEXTS.iter().zip(&all) {
        let alone = together(engine, std::slice::from_ref(text)).context("one sequence")?;
        ensure!(alone[0] == *logits, "the text of {text:?} notices the others");
    }
    Ok(())
}

/// The logits behind the last of the steps of all of `texts`, each of which reads its own beginning first.
fn together(engine: &mut dyn Engine, texts: &[[u32; 3]]) -> Result<Vec<Vec<f32>>> {
    let mut sequences = Vec::new();
    for text in texts {
        engine.reset();
        engine.prefill(text)?;
        sequences.push(engine.fork(text.len())?);
    }
    engine.reset();
    let mut all = Vec::new();
    for step in 0..STEPS {
        all.clear();
        let tokens: Vec<u32> = texts.iter().map(|text| text[step % 3] + step as u32).collect();
        engine.logits_of_many(&mut sequences, &tokens, &mut |_, logits| {
            all.push(logits.to_vec());
            Ok(())
        })?;
    }
    Ok(all)
}

/// The tokens behind a short prompt, chosen on the host or as the engine does it.
fn chosen(engine: &mut dyn Engine, options: &SampleOptions, count: usize, on_host: bool) -> Result<Vec<u32>> {
    let (prompt, mut sampler) = ([3, 1, 4], Sampler::new(options.clone()));
    let mut tokens = Vec::new();
    let mut take = |token| {
        tokens.push(token);
        ControlFlow::Continue(())
    };
    engine.reset();
    if on_host {
        generate_on_host(engine, &prompt, &mut sampler, count, &mut take)?;
    } else {
        engine.generate(&prompt, &mut sampler, count, &mut take)?;
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkinfer::gpu::emulated::Emulated;

    #[test]
    fn a_model_in_the_emulator() {
        let case = ModelCase {
            preset: "small-llama",
            mix: Mix::Q4_0,
            arithmetic: Arithmetic::Reference,
            kv: KvType::F16,
            tokens: 2,
            generated: 2,
        };
        let remark = run(&case, Emulated::default()).expect("it agrees");
        assert!(remark.starts_with("emulator, f32 reference: error "), "{remark}");
    }

    #[test]
    fn a_wrong_logit_is_an_error() {
        assert_eq!(error(&[1.0, -2.0], &[1.0, -2.0]), 0.0);
        assert_eq!(error(&[1.0, -1.0], &[1.0, -2.0]), 0.5);
        assert!(error(&[f32::NAN, -2.0], &[1.0, -2.0]).is_nan());
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = cases().iter().map(ModelCase::name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(
            (
                names.len(),
                names.contains(&"model/small-gemma3/q4_k_m/reference".into())
            ),
            (count, true)
        );
    }
}
