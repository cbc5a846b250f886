//! Real models, cut until a test can afford them, and the comparison of their tokens on two engines.

use std::collections::HashSet;
use std::ops::ControlFlow;

use anyhow::{Context, Result, ensure};
use sparkinfer::bundled;
use sparkinfer::cpu::{CpuEngine, CpuOptions};
use sparkinfer::engine::Engine;
use sparkinfer::gpu::{Backend, GpuEngine};
use sparkinfer::model::{KvType, ModelSpec};
use sparkinfer::sample::{SampleOptions, Sampler};
use sparkinfer_gguf::Gguf;

use crate::assets::{Asset, GEMMA3, QWEN25, SMOLLM2};
use crate::recast::Recast;

/// Gap of the reference's two best logits, as a share of the largest, up to which the second counts: activations of
/// 16 bits and cache entries that round the other way move logits by some thousandths.
const NEAR_TIE: f32 = 0.02;

/// A model cut from a real one.
pub struct Cut {
    /// Name of the new file.
    pub name: &'static str,
    /// What it is cut from; none: the bundled model.
    pub asset: Option<Asset>,
    /// Layers and tokens that a test in the emulator can afford, and those for a device.
    sizes: [[usize; 2]; 2],
    make: fn(&mut Recast, layers: usize) -> Result<()>,
}

/// How much is left of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// For the emulator.
    Small,
    /// For a device.
    Large,
}

/// A cut of every architecture, and SmolLM2's networks as experts.
pub const CUTS: &[Cut] = &[
    Cut {
        name: "smollm2-cut",
        asset: Some(SMOLLM2),
        sizes: [[1, 256], [3, 2048]],
        make: first_layers,
    },
    Cut {
        name: "smollm2-experts",
        asset: Some(SMOLLM2),
        sizes: [[1, 256], [1, 1024]],
        make: |recast, layers| {
            first_layers(recast, layers)?;
            recast.copy_into_experts(4, 2).map(|_| ())
        },
    },
    Cut {
        name: "smollm2-cut-experts",
        asset: Some(SMOLLM2),
        sizes: [[1, 256], [2, 1024]],
        make: |recast, layers| {
            first_layers(recast, layers)?;
            recast.cut_into_experts(8).map(|_| ())
        },
    },
    Cut {
        name: "qwen2-cut",
        asset: Some(QWEN25),
        sizes: [[1, 256], [1, 1024]],
        make: first_layers,
    },
    Cut {
        name: "gemma3-cut",
        asset: Some(GEMMA3),
        sizes: [[2, 256], [2, 1024]],
        // One layer of each kind, and a window that short texts reach.
        make: |recast, layers| {
            recast.keep_layers(4, layers)?;
            recast.set("attention.sliding_window_pattern", 2u32);
            recast.set("attention.sliding_window", 8u32);
            Ok(())
        },
    },
    Cut {
        name: "qwen3-cut",
        asset: None,
        sizes: [[1, 256], [2, 1024]],
        make: |recast, layers| {
            first_layers(recast, layers)?;
            recast.keep_first_expert()?.rename("qwen3");
            Ok(())
        },
    },
];

fn first_layers(recast: &mut Recast, layers: usize) -> Result<()> {
    recast.keep_layers(0, layers).map(|_| ())
}

impl Cut {
    /// Makes the model and gives it to `use_it`; none, with a message, where its asset has not been fetched.
    ///
    /// # Errors
    /// A file that is not as expected, or those of `use_it`.
    pub fn with<T>(&self, size: Size, use_it: impl FnOnce(&Recast) -> Result<T>) -> Result<Option<T>> {
        let source = match &self.asset {
            None => Gguf::from_bytes(bundled::model().context("the bundled model is not in the program")?)?,
            Some(asset) => match asset.get() {
                None => return Ok(None),
                Some(path) => Gguf::open(path)?,
            },
        };
        let [layers, tokens] = self.sizes[size as usize];
        let mut recast = Recast::of(&source)?;
        (self.make)(&mut recast, layers)?;
        recast.keep_tokens(tokens)?;
        use_it(&recast).map(Some)
    }
}

/// Lets the CPU's f32 reference choose a token behind each one of `prompt` and then `count` of its own, and checks that the
/// GPU engine on `backend` chooses the same: behind the same tokens, and left alone behind the prompt. Where the reference's two best logits nearly tie,
/// its second counts too.
///
/// # Errors
/// Another token, or what a loader or a device reports.
pub fn same_tokens<B: Backend>(gguf: &Gguf, backend: B, prompt: &[u32], count: usize) -> Result<String> {
    let spec = ModelSpec::from_gguf(gguf)?;
    let context = prompt.len() + count;
    let options = CpuOptions {
        kv: KvType::F16,
        ..CpuOptions::reference(context)
    };
    let mut reference = CpuEngine::new(gguf, &spec, &options)?;
    let (tokens, choices) = choose(&mut reference, prompt, count)?;
    let mut gpu = GpuEngine::load(backend, gguf, &spec, context, &mut |_, _| {})?;
    let ties = follow(&mut gpu, &tokens, &choices)?;
    let (alone, own) = (alone(&mut gpu, prompt, count)?, &choices[prompt.len() - 1..]);
    let same = alone
        .iter()
        .zip(own)
        .take_while(|(id, choice)| **id == choice.id)
        .count();
    ensure!(
        same == count || own[same].allows(alone[same]),
        "alone the device chose {alone:?}, which differs from number {same} on"
    );
    let distinct: HashSet<u32> = choices.iter().map(|choice| choice.id).collect();
    Ok(format!(
        "{}: {} tokens, {} different ones, as on the CPU, {ties} near ties; {same} of {count} alone",
        gpu.description().device,
        choices.len(),
        distinct.len()
    ))
}

/// What the reference chooses at one step.
struct Choice {
    id: u32,
    second: u32,
    near: bool,
}

impl Choice {
    fn allows(&self, id: u32) -> bool {
        id == self.id || self.near && id == self.second
    }

    fn from_logits(logits: &[f32]) -> Self {
        let best_but = |but: Option<u32>| {
            let ids = (0..logits.len() as u32).filter(|&id| Some(id) != but);
            ids.max_by(|&a, &b| logits[a as usize].total_cmp(&logits[b as usize]).then(b.cmp(&a)))
        };
        let id = best_but(None).unwrap_or(0);
        let second = best_but(Some(id)).unwrap_or(0);
        let largest = logits.iter().fold(0f32, |most, x| most.max(x.abs()));
        let gap = logits[id as usize] - logits[second as usize];
        Self {
            id,
            second,
            near: gap < NEAR_TIE * largest,
        }
    }
}

/// The choices behind each token of `prompt` and of the `count` that the engine goes on with, and all of these tokens but
/// the last.
fn choose(engine: &mut dyn Engine, prompt: &[u32], count: usize) -> Result<(Vec<u32>, Vec<Choice>)> {
    let (mut tokens, mut choices) = (prompt.to_vec(), Vec::new());
    while choices.len() < prompt.len() + count - 1 {
        let choice = Choice::from_logits(engine.decode(tokens[choices.len()])?);
        if choices.len() + 1 >= tokens.len() {
            tokens.push(choice.id);
        }
        choices.push(choice);
    }
    tokens.truncate(choices.len());
    Ok((tokens, choices))
}

/// Gives the engine the same tokens; returns how many times it chose the second of a near tie.
fn follow(engine: &mut dyn Engine, tokens: &[u32], choices: &[Choice]) -> Result<usize> {
    let mut found = Vec::new();
    engine.logits_of_all(tokens, 0, &mut |_, logits| {
        found.push(Choice::from_logits(logits).id);
        Ok(())
    })?;
    for (step, (id, choice)) in found.iter().zip(choices).enumerate() {
        ensure!(choice.allows(*id), "behind token {step}: {id}, not {}", choice.id);
    }
    let differs = |(id, choice): &(&u32, &Choice)| **id != choice.id;
    Ok(found.iter().zip(choices).filter(differs).count())
}

/// What the engine chooses by itself.
fn alone(engine: &mut dyn Engine, prompt: &[u32], count: usize) -> Result<Vec<u32>> {
    let (mut ids, mut sampler) = (Vec::new(), Sampler::new(SampleOptions::default()));
    engine.reset();
    engine.generate(prompt, &mut sampler, count, &mut |id| {
        ids.push(id);
        ControlFlow::Continue(())
    })?;
    Ok(ids)
}
