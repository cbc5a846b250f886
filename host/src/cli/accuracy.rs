//! `sparkinfer accuracy`: how far is the output from the truth?

use super::cache::CacheArguments;
use super::peer::PeerArguments;
use super::progress::LoadBar;
use super::{Outcome, output};
use crate::accuracy::{
    BaseFile, Gate, LlamaPerplexity, Options, Parties, PeerRun, Predictor, Recorded, Recorder, Recording, Reference,
    Report, Text, Way, Window, measure, record, svg,
};
use crate::bench::{Machine, ModelFacts, sha256};
use crate::device::DeviceChoice;
use crate::generate::prompt;
use crate::load::{EngineOptions, Model};
use crate::model::KvType;
use crate::trace::{Settings, Side};
use crate::tuning::TuningSource;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum, value_parser};
use std::path::{Path, PathBuf};

/// Measure how far a model's output here is from an f32 reference and from llama.cpp's
///
/// All predict the same text over the whole vocabulary. With --gate, ends with exit code 1 where a limit is not kept.
#[derive(Args, Debug)]
pub struct Arguments {
    /// GGUF file; the bundled model if not given
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Text file; with --base, the text in that file
    #[arg(long, value_name = "PATH", required_unless_present = "base")]
    file: Option<PathBuf>,
    /// Tokens of a window, of which the second half is scored
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u32).range(4..))]
    ctx: u32,
    /// Windows [default: 8, with --base those of that file]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    windows: Option<u32>,
    /// Where to compute what is measured: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: DeviceChoice,
    /// Measure the device's own f32 reference
    #[arg(long)]
    f32: bool,
    #[command(flatten)]
    cache: CacheArguments,
    /// Threads of CPU engines [default: one per core]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// How the engine takes the scored tokens
    #[arg(long, value_enum, default_value_t = WayName::Decode)]
    way: WayName,
    /// Engines to measure by, the main one first: cpu, cuda, cuda:N or emulator with -f32 behind it
    #[arg(long, value_name = "ENGINE,…", value_delimiter = ',', default_value = "cpu-f32")]
    reference: Vec<Side>,
    /// Measure by predictions that --record wrote, instead of by an engine's
    #[arg(long, value_name = "PATH", conflicts_with = "reference")]
    reference_file: Option<PathBuf>,
    /// Only write what the first reference predicts where it would be asked, for --reference-file: on another machine, or
    /// once for many measurements
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["reference_file", "device", "f32", "way", "way_depth", "depth_kv_types", "peer", "gate", "json", "plot"]
    )]
    record: Option<PathBuf>,
    /// llama.cpp's llama-perplexity, to be run on the same model and text
    #[arg(
        long,
        value_name = "PATH",
        requires = "model",
        requires = "file",
        conflicts_with = "base"
    )]
    peer: Option<PathBuf>,
    #[command(flatten)]
    peer_limit: PeerArguments,
    /// A file that llama-perplexity --kl-divergence-base wrote for the same model: its text is the text
    #[arg(long, value_name = "PATH", conflicts_with_all = ["file", "ctx"])]
    base: Option<PathBuf>,
    /// Also compare with the first reference behind this many tokens
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    depth: Vec<usize>,
    /// At each depth, measure with these types of cache too
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',', requires = "depth")]
    depth_kv_types: Vec<KvType>,
    /// Compare the engine's ways of taking tokens behind this many; none for not at all [default: 0 and half a window]
    #[arg(long, value_name = "N,…", value_delimiter = ',', num_args = 0..)]
    way_depth: Option<Vec<usize>>,
    /// Tokens scored at each depth
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..))]
    tokens_at_depth: u32,
    /// Tokens that the engine and the first reference write by themselves, behind each of four prompts; 0 for none
    #[arg(long, value_name = "N", default_value_t = 32)]
    write: u32,
    /// Limits to be kept: a JSON file
    #[arg(long, value_name = "PATH")]
    gate: Option<PathBuf>,
    /// Write everything measured as JSON
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Draw the divergence by position as SVG
    #[arg(long, value_name = "PATH")]
    plot: Option<PathBuf>,
    /// Leave the model's SHA-256 out
    #[arg(long)]
    no_hash: bool,
    /// No progress on standard error
    #[arg(long)]
    quiet: bool,
}

/// How an engine takes the scored tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WayName {
    /// One by one, as it does when it writes
    Decode,
    /// All at once, as a prompt
    Prompt,
}

/// Prompts behind which engines write by themselves.
const PROMPTS: usize = 4;
/// Windows, if nothing is asked for.
const WINDOWS: usize = 8;

/// Measures and prints.
pub fn run(arguments: Arguments) -> Result<Outcome> {
    let gate = arguments.gate.as_deref().map(Gate::open).transpose()?;
    for path in [&arguments.json, &arguments.plot].into_iter().flatten() {
        output::check_writable(path)?;
    }
    let bar = LoadBar::start("the model", arguments.quiet);
    let model = Model::open(arguments.model.as_deref())?;
    let base = arguments.base.as_deref().map(BaseFile::open).transpose()?;
    let (text, window) = arguments.text(&model, base.as_ref())?;
    let options = arguments.options(window);
    let context = options.context(window);
    let most = model.spec.context_length;
    ensure!(
        context <= most,
        "{context} tokens are asked for, but the model is made for {most}: take a smaller --ctx, --depth or --way-depth"
    );
    let facts = facts(&model, !arguments.no_hash);
    let mut references = arguments.references(&model, &facts, context)?;
    if let Some(path) = &arguments.record {
        drop(bar);
        let recorder = Recorder::create(path, &facts, model.spec.vocab_size, references[0].as_ref())?;
        return arguments.record(references[0].as_mut(), &text, &options, recorder);
    }
    let mut progress = |done, all| bar.set(done, all);
    let (ours, variants) = arguments.measured(&model, context, &mut progress)?;
    drop(bar);
    let (peer, peer_run) = match base {
        Some(file) => (Some(file), None),
        None => arguments.run_peer(&ours, window, text.windows.len())?,
    };
    if let Some(file) = &peer {
        check_peer(file, &model, &text)?;
    }
    let mut parties = Parties {
        references,
        ours,
        variants,
        peer: peer.map(|file| Recorded {
            name: "llama.cpp".to_owned(),
            file,
        }),
    };
    let mut note = |what: &str| arguments.note(what);
    let found = measure(&mut parties, &text, &options, &mut note)?;
    let report = Report {
        model: facts,
        machine: Machine::look(),
        text: text.name,
        window,
        kv_type: arguments.cache.kv_type.map(|kind| kind.to_string()),
        options,
        peer: peer_run,
        verdict: gate.map(|gate| gate.judge(&found)),
        found,
    };
    arguments.publish(&report)
}

fn facts(model: &Model, hash: bool) -> ModelFacts {
    ModelFacts {
        title: model.spec.title(),
        file: file_name(Path::new(model.gguf.label())),
        file_bytes: model.gguf.file_bytes(),
        sha256: hash.then(|| sha256(&model.gguf)),
    }
}

/// A path's last part: where a file lies is no part of a result.
fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Whether a file of predictions is for this model and text.
fn check_peer(file: &BaseFile, model: &Model, text: &Text) -> Result<()> {
    ensure!(
        file.vocab_size() == model.spec.vocab_size,
        "llama.cpp's predictions are for a vocabulary of {} tokens, the model has {}",
        file.vocab_size(),
        model.spec.vocab_size
    );
    let unknown = file
        .tokens()
        .iter()
        .position(|&token| token as usize >= model.spec.vocab_size);
    if let Some(place) = unknown {
        let (token, most) = (file.tokens()[place], model.spec.vocab_size);
        bail!("token {place} of llama.cpp's text is {token}, outside the vocabulary of {most}: its file is damaged");
    }
    let common = file
        .tokens()
        .iter()
        .zip(&text.tokens)
        .take_while(|(a, b)| a == b)
        .count();
    ensure!(
        common == file.tokens().len(),
        "llama.cpp's tokens of the text differ from ours from number {common} on"
    );
    Ok(())
}

impl Arguments {
    /// The text, and the tokens of a window.
    fn text(&self, model: &Model, base: Option<&BaseFile>) -> Result<(Text, usize)> {
        let (tokens, name, window) = match (base, &self.file) {
            (Some(base), _) => (base.tokens().to_vec(), &self.base, base.window()),
            (None, Some(path)) => (
                model.text_ids(&prompt::read_text(path)?)?,
                &self.file,
                self.ctx as usize,
            ),
            (None, None) => bail!("no text: give --file or --base"),
        };
        let bos = model.tokenizer.bos().filter(|_| model.tokenizer.adds_bos());
        let most = match (self.windows, base) {
            (Some(windows), _) => windows as usize,
            (None, Some(_)) => usize::MAX,
            (None, None) => WINDOWS,
        };
        let windows = Window::cut(&tokens, window, Some(most), bos)?;
        let name = name.as_deref().map(file_name).unwrap_or_default();
        Ok((
            Text {
                name,
                tokens,
                bos,
                windows,
            },
            window,
        ))
    }

    fn options(&self, window: usize) -> Options {
        let half = [0, window / 2];
        Options {
            way_depths: self.way_depth.clone().unwrap_or_else(|| half.to_vec()),
            depths: self.depth.clone(),
            tokens_at_depth: self.tokens_at_depth as usize,
            prompts: if self.write > 0 { PROMPTS } else { 0 },
            written: self.write as usize,
        }
    }

    /// The references; engines among them keep their own types of cache.
    fn references<'m>(
        &self,
        model: &'m Model,
        facts: &ModelFacts,
        context: usize,
    ) -> Result<Vec<Box<dyn Reference + 'm>>> {
        if let Some(path) = &self.reference_file {
            let recording = Recording::open(path)?;
            recording.check(facts, model.spec.vocab_size)?;
            return Ok(vec![Box::new(recording)]);
        }
        let settings = Settings {
            context,
            threads: self.threads.map(usize::from),
            kv: None,
        };
        let references = self.reference.iter().map(|&side| {
            let engine = side.engine(model, &settings)?;
            Ok(Box::new(Predictor {
                name: side.to_string(),
                engine,
                way: Way::Prompt,
            }) as Box<dyn Reference + 'm>)
        });
        references.collect()
    }

    /// Writes the reference's predictions, and nothing else.
    fn record(
        &self,
        reference: &mut dyn Reference,
        text: &Text,
        options: &Options,
        mut recorder: Recorder,
    ) -> Result<Outcome> {
        record(reference, text, options, &mut recorder, &mut |what| self.note(what))?;
        let (bytes, path) = (recorder.finish()?, self.record.as_deref().map(Path::display));
        if let Some(path) = path {
            output::note(&format_args!("{path}: {bytes} bytes"));
        }
        Ok(Outcome::Done)
    }

    /// What is measured, and the same with other types of cache.
    fn measured<'m>(
        &self,
        model: &'m Model,
        context: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Predictor<'m>, Vec<Predictor<'m>>)> {
        let way = match self.way {
            WayName::Decode => Way::Decode,
            WayName::Prompt => Way::Prompt,
        };
        let mut predictor = |name: String, kv: Option<KvType>| -> Result<Predictor<'m>> {
            let options = EngineOptions {
                device: self.device,
                context,
                threads: self.threads.map(usize::from),
                sequences: 1,
                exact: self.f32,
                kv,
                tuning: TuningSource::Known,
            };
            let engine = model.engine(&options, progress)?;
            Ok(Predictor { name, engine, way })
        };
        let ours = predictor("ours".to_owned(), self.cache.kv_type)?;
        let kinds = self.depth_kv_types.iter();
        let variants = kinds.map(|&kind| predictor(format!("ours, {kind} cache"), Some(kind)));
        Ok((ours, variants.collect::<Result<_>>()?))
    }

    /// Runs the peer, if one is given; its file is gone from the folder once it is open.
    fn run_peer(
        &self,
        ours: &Predictor<'_>,
        window: usize,
        windows: usize,
    ) -> Result<(Option<BaseFile>, Option<PeerRun>)> {
        let (Some(binary), Some(model), Some(text)) = (&self.peer, &self.model, &self.file) else {
            return Ok((None, None));
        };
        self.note("llama.cpp's predictions");
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let peer = if ours.engine.description().device.starts_with("CPU") {
            LlamaPerplexity::on_cpu(binary, self.threads.map_or_else(cores, usize::from))
        } else {
            LlamaPerplexity::on_gpu(binary)
        };
        let peer = peer.within(self.peer_limit.limit());
        let peer = match self.cache.kv_type {
            Some(kind) => peer.with_cache(kind.name()),
            None => peer,
        };
        let folder = tempfile::tempdir().context("cannot make a folder for llama.cpp's predictions")?;
        let file = peer.run(model, text, window, windows, &folder.path().join("predictions"))?;
        Ok((Some(file), Some(peer.facts()?)))
    }

    fn note(&self, what: &str) {
        if !self.quiet {
            output::note(&format_args!("measuring: {what}"));
        }
    }

    fn publish(&self, report: &Report) -> Result<Outcome> {
        if let Some(path) = &self.json {
            output::write_file(path, &(serde_json::to_string_pretty(report)? + "\n"))?;
        }
        if let Some(path) = &self.plot {
            output::write_file(path, &svg(report))?;
        }
        output::print_text(&report.to_string())?;
        match &report.verdict {
            Some(verdict) if !verdict.passed => {
                bail!("the accuracy gate failed: {}", verdict.broken().join(", "))
            }
            _ => Ok(Outcome::Done),
        }
    }
}
