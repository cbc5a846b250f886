//! From a prompt's tokens to streamed text: the loop between an engine, a tokenizer and whoever reads the text.

pub mod context;
mod many;
pub mod prompt;
pub mod stats;
pub mod stop;
mod text;

use crate::engine::{Engine, EngineError};
use crate::sample::{SampleOptions, Sampler};
use serde::Serialize;
use stats::Timings;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use stop::StopMatcher;

pub use many::generate_many;
pub use text::TokenText;

/// Tokens of the prompt between two looks at the interrupt flag.
const PROMPT_CHUNK: usize = 512;

/// What to generate.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The prompt, not empty.
    pub prompt_ids: Vec<u32>,
    /// Most tokens to generate.
    pub limit: usize,
    /// The text ends before the first of these.
    pub stops: Vec<String>,
    /// Whether to go on after an end-of-text token.
    pub ignore_eos: bool,
    /// How tokens are chosen.
    pub sampling: SampleOptions,
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finish {
    /// As many tokens as asked for.
    Length,
    /// The model ended the text.
    EndOfText,
    /// A stop string.
    Stop,
    /// The context is full.
    Context,
    /// Ctrl-C.
    Interrupted,
}

/// A finished text.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The sampled tokens, without the end-of-text token that ended them.
    pub output_ids: Vec<u32>,
    /// Their text, up to a stop string.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// What it took, loading left out.
    pub timings: Timings,
}

/// Why a text could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The text could not be written.
    #[error("cannot write the text")]
    Output(#[from] io::Error),
}

/// What the loop asks of a tokenizer.
pub trait TextStream {
    /// Whether this token ends a text.
    fn ends_text(&self, token: u32) -> bool;
    /// The text that is complete with this token: whole characters only.
    fn push(&mut self, token: u32) -> String;
    /// What is left of an incomplete character.
    fn finish(&mut self) -> String;
}

/// Runs `request` on an engine whose sequence is empty, giving each piece of text to `sink` as soon as it is certain.
/// Setting `interrupted` ends the run after the token, or the part of the prompt, that is being computed.
///
/// # Errors
/// What the engine refuses (an empty prompt, more tokens than the context holds), and failures of `sink`.
pub fn generate(
    engine: &mut dyn Engine,
    stream: &mut dyn TextStream,
    request: &Request,
    interrupted: &AtomicBool,
    sink: &mut dyn FnMut(&str) -> io::Result<()>,
) -> Result<Generation, GenerateError> {
    let mut sampler = Sampler::new(request.sampling.clone());
    let mut run = Run::new(stream, request, interrupted, sink);
    let last = run.read_prompt(engine, &mut sampler)?;
    if !run.is_interrupted() {
        engine.generate(last, &mut sampler, request.limit, &mut |token| run.take(token))?;
    }
    run.finish()
}

/// The state of one text.
struct Run<'a> {
    stream: &'a mut dyn TextStream,
    request: &'a Request,
    interrupted: &'a AtomicBool,
    sink: &'a mut dyn FnMut(&str) -> io::Result<()>,
    matcher: StopMatcher,
    output_ids: Vec<u32>,
    text: String,
    ended: bool,
    failure: Option<io::Error>,
    clock: Clock,
}

/// When things happened.
struct Clock {
    start: Instant,
    first: Option<Instant>,
    last: Option<Instant>,
    tokens: usize,
}

impl Clock {
    fn tick(&mut self) {
        let now = Instant::now();
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.tokens += 1;
    }

    fn timings(&self, prompt_tokens: usize) -> Timings {
        let first = self.first.unwrap_or_else(Instant::now);
        Timings {
            load_seconds: 0.0,
            prompt_tokens,
            prompt_seconds: (first - self.start).as_secs_f64(),
            generated_tokens: self.tokens,
            decode_seconds: self.last.map_or(0.0, |last| (last - first).as_secs_f64()),
        }
    }
}

impl<'a> Run<'a> {
    fn new(
        stream: &'a mut dyn TextStream,
        request: &'a Request,
        interrupted: &'a AtomicBool,
        sink: &'a mut dyn FnMut(&str) -> io::Result<()>,
    ) -> Self {
        Self {
            stream,
            request,
            interrupted,
            sink,
            matcher: StopMatcher::new(request.stops.iter().cloned()),
            output_ids: Vec::new(),
            text: String::new(),
            ended: false,
            failure: None,
            clock: Clock {
                start: Instant::now(),
                first: None,
                last: None,
                tokens: 0,
            },
        }
    }

    /// Reads all but the last part of the prompt, and returns that.
    fn read_prompt(&self, engine: &mut dyn Engine, sampler: &mut Sampler) -> Result<&'a [u32], EngineError> {
        let mut rest = self.request.prompt_ids.as_slice();
        while rest.len() > PROMPT_CHUNK && !self.is_interrupted() {
            let (chunk, after) = rest.split_at(PROMPT_CHUNK);
            engine.prefill(chunk)?;
            chunk.iter().for_each(|&token| sampler.accept(token));
            rest = after;
        }
        Ok(rest)
    }

    /// Takes a sampled token; says whether to go on.
    fn take(&mut self, token: u32) -> ControlFlow<()> {
        self.clock.tick();
        self.ended = self.stream.ends_text(token) && !self.request.ignore_eos;
        if !self.ended {
            self.output_ids.push(token);
            let piece = self.stream.push(token);
            let certain = self.matcher.push(&piece);
            self.emit(&certain);
        }
        let over = self.ended || self.matcher.matched() || self.failure.is_some() || self.is_interrupted();
        if over {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn emit(&mut self, text: &str) {
        self.text.push_str(text);
        if !text.is_empty() && self.failure.is_none() {
            self.failure = (self.sink)(text).err();
        }
    }

    fn finish(mut self) -> Result<Generation, GenerateError> {
        let incomplete = self.stream.finish();
        let mut rest = self.matcher.push(&incomplete);
        rest += &self.matcher.finish();
        self.emit(&rest);
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        let finish = self.reason();
        let timings = self.clock.timings(self.request.prompt_ids.len());
        Ok(Generation {
            output_ids: self.output_ids,
            text: self.text,
            finish,
            timings,
        })
    }

    fn reason(&self) -> Finish {
        match () {
            _ if self.matcher.matched() => Finish::Stop,
            _ if self.ended => Finish::EndOfText,
            _ if self.clock.tokens == self.request.limit => Finish::Length,
            _ if self.is_interrupted() => Finish::Interrupted,
            _ => Finish::Context,
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
