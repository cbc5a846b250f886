//! Several texts after one prompt, in steps of all of them.

use super::{GenerateError, Generation, Request, Run, TextStream};
use crate::engine::{Engine, EngineError, Sequence, meaningful};
use crate::sample::{SampleOptions, Sampler};
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

/// A text that has not ended.
struct Going {
    /// Its number among all.
    text: usize,
    sampler: Sampler,
    /// Its last token, which is not in its sequence yet.
    token: u32,
    tokens: usize,
}

/// Runs `request` once for each of `streams`, on an engine whose sequence is empty: the prompt is read once. Text i is
/// sampled with the request's seed + i. Setting `interrupted` ends all after the step that is being computed.
///
/// # Errors
/// What the engine refuses (an empty prompt, more tokens than the context or the cache holds).
pub fn generate_many<S: TextStream>(
    engine: &mut dyn Engine,
    streams: &mut [S],
    request: &Request,
    interrupted: &AtomicBool,
) -> Result<Vec<Generation>, GenerateError> {
    let mut sinks: Vec<fn(&str) -> io::Result<()>> = vec![|_| Ok(()); streams.len()];
    let mut runs: Vec<Run> = streams
        .iter_mut()
        .zip(&mut sinks)
        .map(|(stream, sink)| Run::new(stream, request, interrupted, sink))
        .collect();
    let (mut going, mut sequences) = begin(engine, &mut runs, request)?;
    while !going.is_empty() {
        let mut tokens: Vec<u32> = going.iter().map(|going| going.token).collect();
        step(engine, &mut sequences, &mut tokens, &mut going, &request.sampling)?;
        let room = engine.context() - request.prompt_ids.len();
        let taken = going.into_iter().zip(sequences).zip(tokens);
        (going, sequences) = taken
            .filter_map(|((mut one, sequence), token)| {
                let goes_on = one.take(&mut runs, token, request.limit.min(room + 1));
                goes_on.then_some((one, sequence))
            })
            .unzip();
    }
    runs.into_iter().map(Run::finish).collect()
}

/// Reads the prompt and takes the first token of each text; those that go on, and their sequences.
fn begin(
    engine: &mut dyn Engine,
    runs: &mut [Run<'_>],
    request: &Request,
) -> Result<(Vec<Going>, Vec<Sequence>), EngineError> {
    let (mut going, mut sequences) = (Vec::new(), Vec::new());
    let Some(run) = runs.first() else {
        return Ok((going, sequences));
    };
    let last = run.read_prompt(engine, &mut Sampler::new(SampleOptions::default()))?;
    if run.is_interrupted() {
        return Ok((going, sequences));
    }
    let logits = engine.prefill(last)?.to_vec();
    if request.limit == 0 {
        return Ok((going, sequences));
    }
    let room = engine.context() - request.prompt_ids.len();
    for text in 0..runs.len() {
        let mut sampler = Sampler::new(SampleOptions {
            seed: request.sampling.seed.wrapping_add(text as u64),
            ..request.sampling.clone()
        });
        request.prompt_ids.iter().for_each(|&token| sampler.accept(token));
        let token = sampler.sample(meaningful(&logits)?);
        let mut one = Going {
            text,
            sampler,
            token,
            tokens: 0,
        };
        if one.take(runs, token, request.limit.min(room + 1)) {
            going.push(one);
            sequences.push(engine.fork(usize::MAX)?);
        }
    }
    // The prompt's own sequence holds nothing that the others need.
    engine.reset();
    Ok((going, sequences))
}

impl Going {
    /// Takes the next token; whether the text goes on, which has `most` tokens at most.
    fn take(&mut self, runs: &mut [Run<'_>], token: u32, most: usize) -> bool {
        self.sampler.accept(token);
        self.token = token;
        self.tokens += 1;
        runs[self.text].take(token) != ControlFlow::Break(()) && self.tokens < most
    }
}

/// Appends `tokens` and puts the next ones in their places.
fn step(
    engine: &mut dyn Engine,
    sequences: &mut [Sequence],
    tokens: &mut [u32],
    going: &mut [Going],
    sampling: &SampleOptions,
) -> Result<(), EngineError> {
    if sampling.is_argmax() {
        return engine.next_of_many(sequences, tokens);
    }
    let last = tokens.to_vec();
    engine.logits_of_many(sequences, &last, &mut |i, logits| {
        tokens[i] = going[i].sampler.sample(meaningful(logits)?);
        Ok(())
    })
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests {
    use super::*;
    use crate::cpu::{CpuEngine, CpuOptions};
    use crate::generate::{Finish, TokenText, generate};
    use crate::load::Model;

    fn request(temperature: f32, limit: usize) -> Request {
        Request {
            prompt_ids: vec![36, 1783, 3628],
            limit,
            stops: vec!["e".into()],
            ignore_eos: true,
            sampling: SampleOptions {
                temperature,
                seed: 5,
                ..SampleOptions::default()
            },
        }
    }

    /// Some end at the stop string, the others go on without them.
    #[test]
    fn each_text_is_the_one_that_it_would_be_alone() {
        let model = Model::open(None).unwrap();
        let options = CpuOptions::practical(3 + 12);
        let mut engine = CpuEngine::new(&model.gguf, &model.spec, &options).unwrap();
        let never = AtomicBool::new(false);
        for (temperature, limit) in [(1.5, 8), (1.5, 40), (0.0, 3), (0.0, 0)] {
            let request = request(temperature, limit);
            let mut streams = [(); 4].map(|()| TokenText::new(&model.tokenizer));
            engine.reset();
            let texts = generate_many(&mut engine, &mut streams, &request, &never).unwrap();
            for (i, text) in texts.iter().enumerate() {
                let mut alone = request.clone();
                alone.sampling.seed += i as u64;
                engine.reset();
                let mut stream = TokenText::new(&model.tokenizer);
                let expected = generate(&mut engine, &mut stream, &alone, &never, &mut |_| Ok(())).unwrap();
                let of = |one: &Generation| (one.output_ids.clone(), one.text.clone(), one.finish);
                assert_eq!(of(text), of(&expected), "text {i} at {temperature}");
            }
        }
    }

    #[test]
    fn an_interrupt_ends_all() {
        let model = Model::open(None).unwrap();
        let mut engine = CpuEngine::new(&model.gguf, &model.spec, &CpuOptions::practical(16)).unwrap();
        let mut streams = [(); 2].map(|()| TokenText::new(&model.tokenizer));
        let texts = generate_many(&mut engine, &mut streams, &request(0.0, 4), &AtomicBool::new(true)).unwrap();
        assert!(texts.iter().all(|text| text.finish == Finish::Interrupted));
    }
}
