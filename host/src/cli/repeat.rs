//! `sparkinfer repeat`: whether decoding gives the same tokens each time.

use super::bench::{CPU, GPU, fitting, real_prompt};
use super::engine::EngineArguments;
use super::progress::LoadBar;
use super::{Outcome, output};
use crate::bench::{PromptTokens, RepeatOptions, RepeatReport, repeat, sha256};
use crate::load::Model;
use anyhow::{Result, bail, ensure};
use clap::{Args, value_parser};
use std::path::PathBuf;

/// Generate the same tokens several times, at several depths, and compare
///
/// Every run is greedy, goes on after end-of-text tokens, and begins behind the same cached tokens. One line a depth says
/// whether all runs gave the same tokens, and their SHA-256; the exit code is 1 if any did not.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    engine: EngineArguments,
    /// Tokens in the cache before the first one [default: 0,512,4096,16384,32768 on a GPU, 0,512 on the CPU, as the model allows]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    depth: Option<Vec<usize>>,
    /// Tokens of a run [default: 512 on a GPU, 32 on the CPU]
    #[arg(short = 'n', long = "tokens", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    tokens: Option<u32>,
    /// Runs at each depth
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u16).range(2..))]
    runs: u16,
    /// Fill the cache anew for each run
    #[arg(long)]
    refill: bool,
    /// Fill the cache with this text instead of tokens from all over the vocabulary; a text that is too short begins again
    #[arg(long, value_name = "PATH")]
    real_prompt: Option<PathBuf>,
    /// Write everything as JSON, the first run's tokens too
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Leave the model's SHA-256 out
    #[arg(long)]
    no_hash: bool,
    /// No progress on standard error
    #[arg(long)]
    quiet: bool,
}

/// Tokens of a run on a GPU.
const GPU_TOKENS: usize = 512;

/// Repeats, compares and prints.
pub fn run(arguments: Arguments) -> Result<Outcome> {
    if let Some(path) = &arguments.json {
        output::check_writable(path)?;
    }
    let bar = LoadBar::start("the model", arguments.quiet);
    let model = arguments.engine.open()?;
    let options = arguments.options(model.spec.context_length)?;
    let prompt = arguments.prompt(&model, options.context())?;
    let mut engine = model.engine(&arguments.engine.options(options.context(), 1)?, &mut |done, all| {
        bar.set(done, all)
    })?;
    drop(bar);
    let mut note = |what: &str| {
        if !arguments.quiet {
            output::note(&what);
        }
    };
    let mut report = repeat(engine.as_mut(), &model, &prompt, &options, &mut note)?;
    if !arguments.no_hash {
        report.model.sha256 = Some(sha256(&model.gguf));
    }
    arguments.publish(&report)
}

impl Arguments {
    /// What to repeat with a model with room for `most` tokens.
    fn options(&self, most: usize) -> Result<RepeatOptions> {
        let (defaults, tokens) = match self.engine.device.is_cpu() {
            true => (CPU, CPU.tokens),
            false => (GPU, GPU_TOKENS),
        };
        let tokens = self.tokens.map_or(tokens, |tokens| tokens as usize);
        let depths = self.depth.clone();
        let options = RepeatOptions {
            depths: depths.unwrap_or_else(|| fitting(defaults.depths, tokens + 1, most)),
            tokens,
            runs: usize::from(self.runs),
            refill: self.refill,
        };
        let context = options.context();
        ensure!(
            context <= most,
            "{context} tokens are asked for, but the model is made for {most}: take a smaller --depth or -n"
        );
        Ok(options)
    }

    fn prompt(&self, model: &Model, count: usize) -> Result<PromptTokens> {
        match &self.real_prompt {
            Some(path) => real_prompt(model, path, count),
            None => Ok(PromptTokens::spread(model.spec.vocab_size, count)),
        }
    }

    fn publish(&self, report: &RepeatReport) -> Result<Outcome> {
        if let Some(path) = &self.json {
            output::write_file(path, &(serde_json::to_string_pretty(report)? + "\n"))?;
        }
        output::print_text(&report.to_string())?;
        if report.identical {
            return Ok(Outcome::Done);
        }
        let differing = report.depths.iter().filter(|row| !row.identical);
        let depths: Vec<String> = differing.map(|row| row.depth.to_string()).collect();
        bail!("runs differ at depth {}", depths.join(", "))
    }
}
