//! `--parallel`: several texts after one prompt.

use super::{Arguments, Outcome, output};
use crate::engine::Engine;
use crate::generate::stats::{Stats, Timings};
use crate::generate::{Finish, Generation, Request, TokenText, generate_many};
use crate::load::Model;
use serde::Serialize;
use std::sync::atomic::AtomicBool;

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    model: &'a str,
    device: &'a str,
    prompt_ids: &'a [u32],
    texts: Vec<Text<'a>>,
    timings: Timings,
}

/// One of the texts.
#[derive(Serialize)]
struct Text<'a> {
    seed: u64,
    output_ids: &'a [u32],
    text: &'a str,
    finish: Finish,
}

/// Generates the texts, prints them in order, and says what they took together.
pub(super) fn run(
    arguments: &Arguments,
    engine: &mut dyn Engine,
    model: &Model,
    request: &Request,
    interrupted: &AtomicBool,
    load_seconds: f64,
) -> anyhow::Result<Outcome> {
    let mut streams: Vec<TokenText> = (0..arguments.parallel)
        .map(|_| TokenText::new(&model.tokenizer))
        .collect();
    let texts = generate_many(engine, &mut streams, request, interrupted)?;
    let timings = together(&texts, load_seconds);
    report(arguments, engine, request, &texts, timings)?;
    let ended = texts.iter().any(|text| text.finish == Finish::Interrupted);
    Ok(if ended { Outcome::Interrupted } else { Outcome::Done })
}

/// The times of all: they begin together, and the last one to end is the end.
fn together(texts: &[Generation], load_seconds: f64) -> Timings {
    let timings = texts.iter().map(|text| text.timings);
    Timings {
        load_seconds,
        generated_tokens: timings.clone().map(|timings| timings.generated_tokens).sum(),
        decode_seconds: timings
            .clone()
            .map(|timings| timings.decode_seconds)
            .fold(0.0, f64::max),
        ..timings.clone().next().unwrap_or_default()
    }
}

fn report(
    arguments: &Arguments,
    engine: &dyn Engine,
    request: &Request,
    texts: &[Generation],
    timings: Timings,
) -> anyhow::Result<()> {
    let description = engine.description();
    let (model, device) = (description.model.as_str(), description.device.as_str());
    let seeds = (0..).map(|i| request.sampling.seed.wrapping_add(i));
    if arguments.json {
        let of = texts.iter().zip(seeds).map(|(one, seed)| Text {
            seed,
            output_ids: &one.output_ids,
            text: &one.text,
            finish: one.finish,
        });
        output::print_json(&Answer {
            model,
            device,
            prompt_ids: &request.prompt_ids,
            texts: of.collect(),
            timings,
        })?;
    } else if arguments.show_tokens {
        let ids = texts.iter().map(|text| text.output_ids.as_slice());
        super::show_tokens(&request.prompt_ids, ids)?;
    } else {
        for (one, seed) in texts.iter().zip(seeds) {
            output::print_text(&format!("--- seed {seed}\n{}\n", one.text))?;
        }
    }
    if !arguments.quiet {
        let memory_bytes = description.weight_bytes + description.kv_bytes;
        output::note(&Stats {
            model,
            device,
            timings,
            memory_bytes,
        });
    }
    Ok(())
}
