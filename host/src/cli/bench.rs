//! `sparkinfer bench`: how fast a model runs here.

use super::engine::EngineArguments;
use super::peer::PeerArguments;
use super::progress::LoadBar;
use super::{Outcome, output};
use crate::bench::{self, BenchOptions, LlamaBench, Peer, PromptTokens, sha256, svg};
use crate::generate::prompt;
use crate::load::Model;
use crate::tuning::Tuning;
use anyhow::{Result, ensure};
use clap::{Args, value_parser};
use std::path::{Path, PathBuf};

/// Measure decode and prompt rates, beside the memory's limit and beside llama.cpp
///
/// Each rate is the median of several, with the smallest and largest, after a warm-up and with the cache filled to its
/// depth. The limit is what a token must read over the bandwidth that is measured in the same run.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    engine: EngineArguments,
    /// Tokens in the cache before decoding [default: 0,512,4096,16384,32768 on a GPU, 0,512 on the CPU, as the model allows]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    depth: Option<Vec<usize>>,
    /// Tokens to decode [default: 128 on a GPU, 32 on the CPU]
    #[arg(short = 'n', long = "tokens", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    tokens: Option<u32>,
    /// Lengths of prompts to read; none for no prompts [default: 128,512,2048 on a GPU, 128 on the CPU]
    #[arg(long, value_name = "N,…", value_delimiter = ',', num_args = 0..)]
    prompt_sizes: Option<Vec<usize>>,
    /// Numbers of sequences to decode together in each step
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = value_parser!(u8).range(1..))]
    sequences: Vec<u8>,
    /// Measurements of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u16).range(1..))]
    reps: u16,
    /// Decode behind this text, too, at each depth; a text that is too short begins again
    #[arg(long, value_name = "PATH")]
    real_prompt: Option<PathBuf>,
    /// Everything behind the text alone, nothing behind tokens from all over the vocabulary
    #[arg(long, requires = "real_prompt")]
    no_synthetic: bool,
    /// llama.cpp's llama-bench, to be run on the same file in turns; for --sequences llama-batched-bench beside it, for
    /// --real-prompt llama-completion
    #[arg(long, value_name = "PATH", requires = "model")]
    peer: Option<PathBuf>,
    #[command(flatten)]
    peer_limit: PeerArguments,
    /// Measurements of each by the peer, in turns with the first of ours [default: as many as --reps]
    #[arg(long, value_name = "N", requires = "peer", value_parser = value_parser!(u16).range(1..))]
    peer_reps: Option<u16>,
    /// Steps that a GPU takes in one recording
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(1..=32))]
    graph_steps: Option<u8>,
    /// Also time each stage of a step, on a GPU
    #[arg(long)]
    profile: bool,
    /// Write everything measured as JSON
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Draw the decode rates as SVG
    #[arg(long, value_name = "PATH")]
    plot: Option<PathBuf>,
    /// Leave the model's SHA-256 out
    #[arg(long)]
    no_hash: bool,
    /// No progress on standard error
    #[arg(long)]
    quiet: bool,
}

/// What is measured if nothing is asked for.
pub(super) struct Defaults {
    pub(super) depths: &'static [usize],
    pub(super) tokens: usize,
    prompt_sizes: &'static [usize],
}

pub(super) const GPU: Defaults = Defaults {
    depths: &[0, 512, 4096, 16384, 32768],
    tokens: 128,
    prompt_sizes: &[128, 512, 2048],
};
pub(super) const CPU: Defaults = Defaults {
    depths: &[0, 512],
    tokens: 32,
    prompt_sizes: &[128],
};

/// The sizes that leave room for `more` tokens where there is room for `most`.
pub(super) fn fitting(sizes: &[usize], more: usize, most: usize) -> Vec<usize> {
    sizes.iter().copied().filter(|size| size + more <= most).collect()
}

/// Measures and prints.
pub fn run(arguments: Arguments) -> Result<Outcome> {
    for path in [&arguments.json, &arguments.plot].into_iter().flatten() {
        output::check_writable(path)?;
    }
    let bar = LoadBar::start("the model", arguments.quiet);
    let model = arguments.engine.open()?;
    let options = arguments.options(model.spec.context_length)?;
    let prompts = arguments.prompts(&model, options.context())?;
    let engine_options = arguments.engine.options(options.context(), options.most_sequences())?;
    let mut engine = model.engine(&engine_options, &mut |done, all| bar.set(done, all))?;
    drop(bar);
    if let Some(steps) = arguments.graph_steps {
        let graph_steps = u32::from(steps);
        engine.retune(Tuning {
            graph_steps,
            ..engine.tuning().unwrap_or_default()
        })?;
    }
    let mut peer = arguments.peer();
    let mut note = |what: &str| {
        if !arguments.quiet {
            output::note(&format_args!("measuring: {what}"));
        }
    };
    let peer = peer.as_mut().map(|peer| peer as &mut dyn Peer);
    let mut report = bench::run(engine.as_mut(), &model, &prompts, &options, peer, &mut note)?;
    if !arguments.no_hash {
        report.model.sha256 = Some(sha256(&model.gguf));
    }
    if let Some(path) = &arguments.json {
        output::write_file(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    if let Some(path) = &arguments.plot {
        output::write_file(path, &svg(&report))?;
    }
    output::print_text(&report.to_string())?;
    Ok(Outcome::Done)
}

/// The first `count` tokens of a file's text. Where the file lies is no part of a result.
pub(super) fn real_prompt(model: &Model, path: &Path, count: usize) -> Result<PromptTokens> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    Ok(PromptTokens::text(
        &model.tokenizer,
        &prompt::read_text(path)?,
        &name,
        count,
    )?)
}

impl Arguments {
    /// What to measure of a model with room for `most` tokens.
    fn options(&self, most: usize) -> Result<BenchOptions> {
        let defaults = if self.engine.device.is_cpu() { CPU } else { GPU };
        let tokens = self.tokens.map_or(defaults.tokens, |tokens| tokens as usize);
        let depths = self.depth.clone();
        let prompt_sizes = self.prompt_sizes.clone();
        let options = BenchOptions {
            depths: depths.unwrap_or_else(|| fitting(defaults.depths, tokens + 2, most)),
            tokens,
            prompt_sizes: prompt_sizes.unwrap_or_else(|| fitting(defaults.prompt_sizes, 0, most)),
            sequences: self.sequences.iter().map(|&count| usize::from(count)).collect(),
            repetitions: usize::from(self.reps),
            peer_repetitions: usize::from(self.peer_reps.unwrap_or(self.reps)),
            profile: self.profile,
        };
        ensure!(
            !options.prompt_sizes.contains(&0),
            "a prompt of 0 tokens cannot be read: take sizes of 1 or more for --prompt-sizes"
        );
        let context = options.context();
        ensure!(
            context <= most,
            "{context} tokens are asked for, but the model is made for {most}: take a smaller --depth, -n or --prompt-sizes"
        );
        Ok(options)
    }

    /// What fills the cache, each of `count` tokens.
    fn prompts(&self, model: &Model, count: usize) -> Result<Vec<PromptTokens>> {
        let synthetic = (!self.no_synthetic).then(|| PromptTokens::spread(model.spec.vocab_size, count));
        let real = self.real_prompt.as_deref().map(|path| real_prompt(model, path, count));
        synthetic.map(Ok).into_iter().chain(real).collect()
    }

    fn peer(&self) -> Option<LlamaBench> {
        let (binary, model) = (self.peer.as_ref()?, self.engine.model.as_ref()?);
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let peer = match self.engine.device.is_cpu() {
            true => LlamaBench::on_cpu(binary, model, self.engine.threads().unwrap_or_else(cores)),
            false => LlamaBench::on_gpu(binary, model),
        };
        let peer = peer.within(self.peer_limit.limit());
        Some(match self.engine.cache.kv_type {
            Some(kv) => peer.with_cache(kv),
            None => peer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::PromptKind;
    use clap::{FromArgMatches, Parser};

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(words: &[&str]) -> Arguments {
        let matches = <Command as clap::CommandFactory>::command().get_matches_from(words);
        Command::from_arg_matches(&matches).unwrap().arguments
    }

    #[test]
    fn defaults_fit_the_model() {
        let options = parse(&["bench", "--device", "cuda"]).options(4096 + 100).unwrap();
        assert_eq!((options.depths, options.tokens), (vec![0, 512], 128));
        assert_eq!(options.prompt_sizes, [128, 512, 2048]);
    }

    #[test]
    fn lists_are_taken_as_given() {
        let words = [
            "bench",
            "--device",
            "cpu",
            "--depth",
            "0,7",
            "-n",
            "2",
            "--prompt-sizes",
            "--reps",
            "1",
        ];
        let options = parse(&words).options(100).unwrap();
        assert_eq!((options.depths.as_slice(), options.context()), (&[0, 7][..], 11));
        assert!(options.prompt_sizes.is_empty());
        let error = parse(&words).options(10).unwrap_err().to_string();
        assert!(
            error.starts_with("11 tokens are asked for, but the model is made for 10"),
            "{error}"
        );
        let empty = ["bench", "--device", "cpu", "--prompt-sizes", "8,0"];
        let error = parse(&empty).options(100).unwrap_err().to_string();
        assert!(error.contains("--prompt-sizes"), "{error}");
        let endless = ["bench", "--device", "cpu", "--depth", "18446744073709551615"];
        assert!(parse(&endless).options(100).is_err());
    }

    #[test]
    fn a_text_joins_what_is_synthetic_or_takes_its_place() {
        let model = Model::open(None).unwrap();
        let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/heldout.txt");
        let kinds = |words: &[&str]| -> Vec<PromptKind> {
            let prompts = parse(&[&["bench"], words].concat()).prompts(&model, 9).unwrap();
            prompts.iter().map(|prompt| prompt.facts().kind).collect()
        };
        assert_eq!(kinds(&[]), [PromptKind::Synthetic]);
        assert_eq!(
            kinds(&["--real-prompt", text]),
            [PromptKind::Synthetic, PromptKind::Real]
        );
        assert_eq!(kinds(&["--real-prompt", text, "--no-synthetic"]), [PromptKind::Real]);
        assert!(Command::try_parse_from(["bench", "--no-synthetic"]).is_err());
    }

    #[test]
    fn a_peer_needs_a_file() {
        assert!(Command::try_parse_from(["bench", "--peer", "llama-bench"]).is_err());
        assert!(
            parse(&["bench", "--device", "cpu", "--model", "m", "--peer", "p"])
                .peer()
                .is_some()
        );
    }
}
