//! `sparkinfer tune`: a search for the fastest launch shapes.

use super::cache::CacheArguments;
use super::progress::LoadBar;
use super::{Outcome, output};
use crate::device::DeviceChoice;
use crate::engine::Engine;
use crate::gpu::GpuEngine;
use crate::gpu::cuda::CudaDevice;
use crate::load::{EngineOptions, Model};
use crate::tuning::{CHOICES, Choice, Key, Known, Report, TrialSizes, TuneOptions, Tuning, TuningSource, store, tune};
use anyhow::{Context, Result, bail};
use clap::{Args, value_parser};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Find the fastest launch shapes for a model on this GPU, and keep them
///
/// Times one choice after the other in decode steps at several depths and in prompts, and takes a value that wins by
/// more than the measurements spread and computes the same but for rounding. What is found lies in the user's cache
/// folder, for this GPU, its driver, this program's kernels, models of this shape and this type of cache; from then on
/// all commands use it. The same tuning gives the same bytes; another one may change the last bits of logits.
#[derive(Args, Debug)]
pub struct Arguments {
    /// GGUF file; the bundled model if not given
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// The GPU: auto, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: DeviceChoice,
    #[command(flatten)]
    cache: CacheArguments,
    /// Tokens in the cache where decoding is timed, as the model allows
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0,4096,16384")]
    depth: Vec<usize>,
    /// Tokens to decode in a measurement
    #[arg(short = 'n', long = "tokens", value_name = "N", default_value_t = 32, value_parser = value_parser!(u16).range(2..=1024))]
    tokens: u16,
    /// Measurements of each value
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Seconds that the search may take; choices that it has not come to stay as they are
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = value_parser!(u32).range(1..=3600))]
    budget_s: u32,
    /// Write what is found to this file, for --tuning, and keep it nowhere else
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// No progress on standard error
    #[arg(long)]
    quiet: bool,
}

/// Tokens of the prompt that is timed.
const PROMPT: usize = 2048;

/// Searches, keeps, and prints.
pub fn run(arguments: Arguments) -> Result<Outcome> {
    let number = match arguments.device {
        DeviceChoice::Cpu => bail!("the CPU has no launches to tune: use --device cuda"),
        DeviceChoice::Auto => None,
        DeviceChoice::Cuda(number) => Some(number),
    };
    let bar = LoadBar::start("the model", arguments.quiet);
    let model = Model::open(arguments.model.as_deref())?;
    let options = arguments.options(&model)?;
    let mut progress = |done, all| bar.set(done, all);
    let engine = model.gpu_engine(number, &arguments.engine_options(&options), &mut progress);
    let mut engine = engine.context("nothing can be tuned here")?;
    drop(bar);
    let place = arguments.place()?;
    if !arguments.quiet {
        output::note(&format_args!("searching for up to {} s", arguments.budget_s));
    }
    let choices: Vec<&Choice> = CHOICES.iter().collect();
    let device = engine.backend().gpu().context().device().clone();
    let report = tune(&mut engine, Known::by_table(&device).tuning, &choices, &options)?;
    // Before it is printed: whoever reads may be gone.
    let kept = arguments.keep(&place, &engine, &model, &report);
    output::print(&report, arguments.json)?;
    let kept = kept?;
    if !arguments.quiet {
        output::note(&format_args!("kept in {}", kept.display()));
    }
    Ok(Outcome::Done)
}

/// Where what is found goes.
enum Place {
    File(PathBuf),
    Cache(PathBuf),
}

impl Arguments {
    /// The place, where something can be written: a search whose result is lost would be in vain.
    fn place(&self) -> Result<Place> {
        match &self.out {
            Some(path) => {
                output::check_writable(path)?;
                Ok(Place::File(path.clone()))
            }
            None => {
                let folder = store::folder();
                let folder =
                    folder.context("there is no cache folder to keep the tuning in: set HOME, or use --out")?;
                let writable = fs::create_dir_all(&folder).and_then(|()| tempfile::tempfile_in(&folder));
                writable.with_context(|| format!("cannot write into {}: use --out", folder.display()))?;
                Ok(Place::Cache(folder))
            }
        }
    }

    fn options(&self, model: &Model) -> Result<TuneOptions> {
        let most = model.spec.context_length;
        let sizes = TrialSizes::fitting(&self.depth, usize::from(self.tokens), PROMPT, most);
        if sizes.depths.is_empty() {
            bail!(
                "no depth leaves room for {} tokens: the model is made for {most}",
                self.tokens
            );
        }
        Ok(TuneOptions {
            sizes,
            rounds: usize::from(self.rounds),
            budget: Duration::from_secs(u64::from(self.budget_s)),
        })
    }

    /// With room for everything that is tried.
    fn engine_options(&self, options: &TuneOptions) -> EngineOptions {
        let largest = |choice: &Choice| choice.candidates.last().copied();
        let chunk = CHOICES
            .iter()
            .find(|choice| choice.name == "prompt_chunk")
            .and_then(largest);
        EngineOptions {
            device: self.device,
            context: options.sizes.context(),
            sequences: 1,
            threads: None,
            exact: false,
            kv: self.cache.kv_type,
            tuning: TuningSource::Given(Tuning {
                prompt_chunk: chunk.unwrap_or(Tuning::default().prompt_chunk),
                ..Tuning::default()
            }),
        }
    }

    fn keep(&self, place: &Place, engine: &GpuEngine<CudaDevice>, model: &Model, report: &Report) -> Result<PathBuf> {
        let device = engine.backend().gpu().context().device();
        let key = Key::new(device, &model.spec, engine.description().kv)?;
        let path = match place {
            Place::File(path) => store::write(path, Some(key), &report.model, report.after).map(|()| path.clone()),
            Place::Cache(folder) => store::keep(folder, key, &report.model, report.after),
        };
        path.context("the tuning cannot be kept")
    }
}
