//! `sparkinfer perplexity`: how well a model predicts a text.

use super::cache::CacheArguments;
use super::progress::WindowBar;
use super::{Outcome, output};
use crate::device::DeviceChoice;
use crate::generate::prompt;
use crate::load::{EngineOptions, Model};
use crate::perplexity::perplexity;
use crate::tuning::TuningSource;
use clap::{Args, value_parser};
use serde::Serialize;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::time::Instant;

/// Measure how well a model predicts a text
///
/// The text is cut into windows; the second half of each is scored. The result is comparable with that of llama.cpp's
/// llama-perplexity.
#[derive(Args, Debug)]
pub struct Arguments {
    /// GGUF file; the bundled model if not given
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Text file
    #[arg(long, value_name = "PATH")]
    file: PathBuf,
    /// Tokens of a window
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u32).range(4..))]
    ctx: u32,
    /// Compute in f32 with dequantised weights: slow, the reference for everything else. On the CPU unless --device
    /// names a GPU
    #[arg(long)]
    f32: bool,
    /// Where to compute: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: DeviceChoice,
    #[command(flatten)]
    cache: CacheArguments,
    /// Threads of the CPU engine [default: one per core]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// No progress on standard error
    #[arg(long)]
    quiet: bool,
}

/// What is printed.
#[derive(Serialize)]
struct Answer {
    model: String,
    device: String,
    perplexity: f64,
    error: f64,
    scored_tokens: usize,
    windows: usize,
    ctx: usize,
    seconds: f64,
}

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self {
            model,
            device,
            perplexity,
            error,
            scored_tokens,
            windows,
            ctx,
            seconds,
        } = self;
        writeln!(f, "perplexity {perplexity:.4} ± {error:.4}")?;
        writeln!(
            f,
            "{scored_tokens} tokens scored in {windows} windows of {ctx}, {seconds:.1} s, {model}, {device}"
        )
    }
}

/// Measures and prints.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let text = prompt::read_text(&arguments.file)?;
    let model = Model::open(arguments.model.as_deref())?;
    let tokens = model.text_ids(&text)?;
    let window = arguments.ctx as usize;
    let mut engine = model.engine(&arguments.engine_options(), &mut |_, _| {})?;
    let bos = model.tokenizer.bos().filter(|_| model.tokenizer.adds_bos());
    let bar = WindowBar::start(tokens.len() / window, arguments.quiet);
    let started = Instant::now();
    let measured = perplexity(engine.as_mut(), &tokens, window, bos, &mut |so_far| {
        bar.next(so_far.value)
    })?;
    drop(bar);
    let description = engine.description();
    let answer = Answer {
        model: description.model.clone(),
        device: description.device.clone(),
        perplexity: measured.value,
        error: measured.error,
        scored_tokens: measured.tokens,
        windows: measured.windows,
        ctx: window,
        seconds: started.elapsed().as_secs_f64(),
    };
    output::print(&answer, arguments.json)?;
    Ok(Outcome::Done)
}

impl Arguments {
    fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            device: self.device,
            context: self.ctx as usize,
            threads: self.threads.map(usize::from),
            sequences: 1,
            exact: self.f32,
            kv: self.cache.kv_type,
            tuning: TuningSource::Known,
        }
    }
}
