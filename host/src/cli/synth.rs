//! `sparkinfer synth`: a model file with random weights.

use super::{Outcome, output};
use crate::synth::{Mix, Preset, Synth, SynthError, SynthOptions};
use anyhow::{Context, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sparkinfer_gguf::Gguf;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Write a model with the exact shapes, types and metadata of a real one, and random weights
#[derive(Args, Debug)]
pub struct Arguments {
    /// Which model: qwen3-30b-a3b, …; a wrong name lists them
    #[arg(long, value_name = "NAME")]
    arch: String,
    /// Tensor types: f32, f16, bf16, q8_0, q4_0, q4_k_m, q5_k_m, q6_k, q2_k, q3_k, iq4_nl, iq4_xs, mxfp4_moe, nvfp4
    #[arg(long, value_name = "MIX", default_value = "q4_k_m")]
    quant: String,
    /// Number of layers, instead of the model's own
    #[arg(long, value_name = "N")]
    layers: Option<u32>,
    /// Seed of the weights: the same one gives the same file
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// GGUF file whose tokenizer to take, instead of a made-up one
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// File to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Writes the file.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    check_output(&arguments)?;
    let vocabulary = arguments.vocab.as_ref().map(Gguf::open).transpose()?;
    let synth = Synth::new(&SynthOptions {
        preset: Preset::find(&arguments.arch)?,
        mix: Mix::find(&arguments.quant)?,
        layers: arguments.layers,
        seed: arguments.seed,
        vocabulary: vocabulary.as_ref(),
    })?;
    let bytes = synth.file_bytes()?;
    let start = Instant::now();
    write(&synth, &arguments.out, bytes)?;
    let seconds = start.elapsed().as_secs_f64();
    let rate = bytes as f64 / seconds / 1e9;
    let path = arguments.out.display();
    output::note(&format_args!("{path}: {bytes} bytes in {seconds:.1} s, {rate:.2} GB/s"));
    Ok(Outcome::Done)
}

/// Refuses an output that is no place for a model, or that the vocabulary is still read from.
fn check_output(arguments: &Arguments) -> anyhow::Result<()> {
    let out = &arguments.out;
    let place = out.display();
    ensure!(
        out.is_file() || out.is_dir() || !out.exists(),
        "{place}: is not a regular file: give --out another name"
    );
    let same = |vocab: &PathBuf| matches!((vocab.canonicalize(), out.canonicalize()), (Ok(a), Ok(b)) if a == b);
    ensure!(
        !arguments.vocab.as_ref().is_some_and(same),
        "{place}: is the file of the vocabulary, too: give --out another name"
    );
    Ok(())
}

/// Writes with a bar; a file that could not be finished is removed.
fn write(synth: &Synth, path: &Path, bytes: u64) -> Result<(), anyhow::Error> {
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes}, {eta} left")?;
    let bar = ProgressBar::new(bytes).with_style(style);
    let result: Result<(), SynthError> = synth.write(path, |made| bar.inc(made));
    bar.finish_and_clear();
    if result.is_err() && path.is_file() {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(result?)
}
