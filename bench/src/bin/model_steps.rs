//! Decode steps of a whole model, with kernels of several PTX files in turns.
//!
//! The engine is the program's own, so every architecture and every kind of kernels can be tried; the file may be one that
//! `sparkinfer synth` wrote. Prints milliseconds a token for each set of kernels and each depth, medians.

use anyhow::{Result, bail, ensure};
use clap::Parser;
use sparkinfer::cuda::Gpu;
use sparkinfer::engine::Engine as _;
use sparkinfer::gpu::cuda::CudaDevice;
use sparkinfer::gpu::{GpuEngine, GpuOptions};
use sparkinfer::model::ModelSpec;
use sparkinfer::sample::{SampleOptions, Sampler};
use sparkinfer::tuning::Tuning;
use sparkinfer_gguf::Gguf;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

/// Times decode steps of a model.
#[derive(Parser)]
struct Options {
    /// GGUF file
    #[arg(long)]
    model: PathBuf,
    /// Kernels in PTX, made for this GPU, beside the program's own
    #[arg(long)]
    ptx: Vec<PathBuf>,
    /// Leave the program's own kernels out
    #[arg(long, requires = "ptx")]
    only_ptx: bool,
    /// Tokens already in the cache
    #[arg(long, value_delimiter = ',', default_value = "0,512,4096")]
    depth: Vec<usize>,
    /// Tokens in a measurement
    #[arg(long, default_value_t = 128)]
    tokens: usize,
    /// Measurements of each setting
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Steps in one recording
    #[arg(long)]
    graph_steps: Option<u32>,
    /// Blocks of attention a key head; 0: as many as fill the GPU
    #[arg(long, default_value_t = 0)]
    splits: u32,
}

/// A set of kernels and an engine of them.
struct Subject {
    name: String,
    engine: GpuEngine<CudaDevice>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    ensure!(options.repeats > 0 && options.tokens > 0, "nothing to measure");
    let gguf = Gguf::open(&options.model)?;
    let spec = ModelSpec::from_gguf(&gguf)?;
    let mut subjects = subjects(&options, &gguf, &spec)?;
    for &depth in &options.depth {
        for subject in &mut subjects {
            fill(&mut subject.engine, depth, spec.vocab_size)?;
        }
        let mut times = vec![Vec::new(); subjects.len()];
        for round in 0..=options.repeats {
            for (subject, times) in subjects.iter_mut().zip(&mut times) {
                let time = milliseconds(&mut subject.engine, options.tokens)?;
                // The first round warms up.
                if round > 0 {
                    times.push(time);
                }
            }
        }
        for (subject, times) in subjects.iter().zip(&mut times) {
            times.sort_by(f64::total_cmp);
            let (median, least, most) = (times[times.len() / 2], times[0], times[times.len() - 1]);
            let rate = 1e3 / median;
            println!(
                "{depth:>6}  {:<24} {median:.4} ms ({least:.4}..{most:.4})  {rate:.1} tokens/s",
                subject.name
            );
        }
    }
    Ok(())
}

/// An engine for each set of kernels.
fn subjects(options: &Options, gguf: &Gguf, spec: &ModelSpec) -> Result<Vec<Subject>> {
    let deepest = options.depth.iter().copied().max().unwrap_or(0);
    let tuning = Tuning {
        attention_splits: options.splits,
        graph_steps: options.graph_steps.unwrap_or(Tuning::default().graph_steps),
        ..Tuning::default()
    };
    let options_of_engine = GpuOptions {
        tuning,
        ..GpuOptions::practical(deepest + options.tokens + 2)
    };
    let own = (!options.only_ptx).then_some(None);
    let files = own.into_iter().chain(options.ptx.iter().map(Some));
    let subject = |path: Option<&PathBuf>| {
        let device = CudaDevice::new(Gpu::open_with(None, path.map(PathBuf::as_path))?)?;
        let engine = GpuEngine::load_with(device, gguf, spec, &options_of_engine, &mut |_, _| {})?;
        let name = path.map_or("own".into(), |path| path.display().to_string());
        Ok(Subject { name, engine })
    };
    files.map(subject).collect()
}

/// Fills the cache to `depth` with tokens from all over the vocabulary, by steps alone: PTX that is made for trials may lack
/// the kernels of prompts.
fn fill(engine: &mut GpuEngine<CudaDevice>, depth: usize, vocab: usize) -> Result<()> {
    engine.truncate(depth);
    while engine.position() < depth {
        engine.decode((engine.position() * 7919 % vocab) as u32)?;
    }
    Ok(())
}

/// Milliseconds of a token behind those that are cached.
fn milliseconds(engine: &mut GpuEngine<CudaDevice>, tokens: usize) -> Result<f64> {
    let depth = engine.position();
    let mut sampler = Sampler::new(SampleOptions::default());
    let mut times = Vec::with_capacity(tokens + 1);
    engine.generate(&[1], &mut sampler, tokens + 1, &mut |_| {
        times.push(Instant::now());
        ControlFlow::Continue(())
    })?;
    engine.truncate(depth);
    let [first, .., last] = times[..] else {
        bail!("the context ends behind {depth} tokens");
    };
    Ok(1e3 * (last - first).as_secs_f64() / (times.len() - 1) as f64)
}
