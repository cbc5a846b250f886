//! `sparkinfer trace-diff`: where two engines first differ.

use super::cache::CacheArguments;
use super::{Outcome, output};
use crate::generate::prompt;
use crate::load::Model;
use crate::trace::{Settings, Side, compare, points};
use anyhow::{Result, ensure};
use clap::{Args, value_parser};
use std::path::PathBuf;

/// Find the first part of a model in which two engines differ
///
/// Both get the same tokens; the residual stream behind every part of every layer is compared. Ends with exit code 1
/// where they differ.
#[derive(Args, Debug)]
pub struct Arguments {
    /// GGUF file; the bundled model if not given
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// The engine to measure by: cpu, cuda, cuda:N, or emulator (the GPU's kernels on the host); with -f32 behind it,
    /// its slow reference in f32
    #[arg(long, value_name = "ENGINE", default_value = "cpu-f32")]
    a: Side,
    /// The engine to measure
    #[arg(long, value_name = "ENGINE", default_value = "cuda")]
    b: Side,
    /// The text
    #[arg(long, value_name = "TEXT", default_value = prompt::SAMPLE)]
    prompt: String,
    /// Compare no more than this many tokens of it
    #[arg(short = 'n', long = "tokens", value_name = "N", default_value_t = 8, value_parser = value_parser!(u32).range(1..))]
    tokens: u32,
    /// Largest difference allowed: root mean square, relative to the first engine's values. Rounding alone gives some
    /// 0.0003 on a GPU (its cache is f16) and 0.02 on the CPU (its activations have 8 bits), more in a deeper model
    #[arg(long, value_name = "X", default_value_t = 0.005, value_parser = tolerance)]
    tolerance: f64,
    #[command(flatten)]
    cache: CacheArguments,
    /// Threads of the CPU engine [default: one per core]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A tolerance that can be exceeded, and kept.
fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(tolerance) if (0.0..f64::INFINITY).contains(&tolerance) => Ok(tolerance),
        _ => Err("expected a number, 0 or above".into()),
    }
}

/// Compares and prints.
pub fn run(arguments: Arguments) -> Result<Outcome> {
    let model = Model::open(arguments.model.as_deref())?;
    let mut tokens = model.prompt_ids(&arguments.prompt)?;
    ensure!(!tokens.is_empty(), "the prompt has no tokens");
    tokens.truncate(arguments.tokens as usize);
    let settings = Settings {
        context: tokens.len(),
        threads: arguments.threads.map(usize::from),
        kv: arguments.cache.kv_type,
    };
    let engine = |side: Side| side.engine(&model, &settings);
    let (mut a, mut b) = (engine(arguments.a)?, engine(arguments.b)?);
    let names = points(&model.spec);
    let diff = compare([a.as_mut(), b.as_mut()], &names, &tokens, arguments.tolerance)?;
    output::print(&diff, arguments.json)?;
    match &diff.first {
        None => Ok(Outcome::Done),
        Some(first) => Err(anyhow::anyhow!(
            "{} and {} differ at {}",
            arguments.a,
            arguments.b,
            first.point
        )),
    }
}
