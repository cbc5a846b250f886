//! `sparkinfer generate`: text after a prompt.

mod many;

use super::cache::CacheArguments;
use super::progress::LoadBar;
use super::tuning::TuningArguments;
use super::{Outcome, interrupt, output};
use crate::device::DeviceChoice;
use crate::engine::Engine;
use crate::generate::prompt::{self, Source};
use crate::generate::stats::{Stats, Timings};
use crate::generate::{Finish, Generation, Request, TokenText, context, generate};
use crate::load::{EngineOptions, Model};
use crate::sample::SampleOptions;
use crate::tokenizer::listing;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, value_parser};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Continue a prompt
///
/// Without --model the bundled tiny model is used; without a prompt, piped input, else a sample prompt. Text streams
/// to standard output, one line of statistics goes to standard error.
#[derive(Args, Debug)]
pub struct Arguments {
    /// GGUF file; the first one of a split model
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    #[command(flatten)]
    prompt: PromptArguments,
    /// Tokens to generate
    #[arg(short = 'n', long = "tokens", value_name = "N", default_value_t = 128)]
    tokens: usize,
    /// Room for prompt and text, in tokens [default: what they need, at most the model's context]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    ctx: Option<u32>,
    #[command(flatten)]
    sampling: SamplingArguments,
    /// Generate this many texts at once, the i-th with seed + i; they are printed when all have ended
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u8).range(1..=64))]
    parallel: u8,
    /// End the text before this string; may be given several times
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    stop: Vec<String>,
    /// Go on after an end-of-text token
    #[arg(long)]
    ignore_eos: bool,
    /// Where to compute: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: DeviceChoice,
    #[command(flatten)]
    cache: CacheArguments,
    #[command(flatten)]
    tuning: TuningArguments,
    /// Threads of the CPU engine [default: one per core]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print one JSON object (prompt_ids, output_ids, text, timings) at the end instead of streaming text
    #[arg(long)]
    json: bool,
    /// Print the tokens' numbers at the end instead of streaming text: the prompt's on the first line, then each text's on
    /// one of its own
    #[arg(long, conflicts_with = "json")]
    show_tokens: bool,
    /// No statistics and no progress on standard error
    #[arg(long)]
    quiet: bool,
}

#[derive(Args, Debug)]
struct PromptArguments {
    /// The prompt itself
    #[arg(long, value_name = "TEXT", group = "source")]
    prompt: Option<String>,
    /// Read the prompt from a file; - is standard input
    #[arg(long, value_name = "PATH", group = "source")]
    prompt_file: Option<PathBuf>,
    /// Read the prompt from standard input
    #[arg(value_name = "-", value_parser = ["-"], hide_possible_values = true, group = "source")]
    stdin: Option<String>,
    /// Put the prompt into the model's chat template, as a user's message
    #[arg(long)]
    chat: bool,
    /// The system message of --chat
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
}

impl PromptArguments {
    fn source(&self) -> Source {
        let file = self.prompt_file.as_deref();
        Source::choose(
            self.prompt.clone(),
            file,
            self.stdin.is_some(),
            prompt::stdin_has_data(),
        )
    }

    /// The ids of the prompt, in the chat template where asked for.
    fn ids(&self, model: &Model, prompt: &str) -> anyhow::Result<Vec<u32>> {
        Ok(if self.chat {
            model.chat_ids(self.system.as_deref(), prompt)?
        } else {
            model.prompt_ids(prompt)?
        })
    }
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
struct SamplingArguments {
    /// Temperature; 0 always takes the likeliest token, and the other settings of chance do nothing
    #[arg(long, value_name = "T", allow_negative_numbers = true, default_value_t = 0.0)]
    temp: f32,
    /// Choose among the K likeliest tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 40)]
    top_k: usize,
    /// Choose among the likeliest tokens that together have this probability; 1 for all
    #[arg(long, value_name = "P", allow_negative_numbers = true, default_value_t = 0.95)]
    top_p: f32,
    /// Choose among tokens at least this likely, relative to the likeliest; 0 for all
    #[arg(long, value_name = "P", allow_negative_numbers = true, default_value_t = 0.05)]
    min_p: f32,
    /// Seed of the random numbers: the same seed gives the same text
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Make recent tokens less likely by this factor; 1 for not
    #[arg(long, value_name = "X", allow_negative_numbers = true, default_value_t = 1.0)]
    repeat_penalty: f32,
    /// How many tokens are recent
    #[arg(long, value_name = "N", default_value_t = 64)]
    repeat_last_n: usize,
}

impl SamplingArguments {
    fn options(&self) -> SampleOptions {
        SampleOptions {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n,
            seed: self.seed,
            suppress: Vec::new(),
        }
    }
}

/// Generates, streams the text, and says what it took.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let sampling = arguments.sampling.options();
    if let Err(error) = sampling.check() {
        super::misused(&error.to_string());
    }
    let prompt = arguments.prompt.source().read()?;
    // Not before: a read that waits for standard input would not end.
    let interrupted = interrupt::watch()?;
    let started = Instant::now();
    let bar = LoadBar::start(&arguments.model_name(), arguments.quiet);
    let model = Model::open(arguments.model.as_deref())?;
    let request = arguments.request(&model, &prompt, sampling)?;
    let mut engine = arguments.engine(&model, &request, &mut |done, all| bar.set(done, all))?;
    drop(bar);
    let load_seconds = started.elapsed().as_secs_f64();
    if arguments.parallel > 1 {
        return many::run(&arguments, engine.as_mut(), &model, &request, interrupted, load_seconds);
    }
    let mut text = TokenText::new(&model.tokenizer);
    let mut sink = |piece: &str| if arguments.streams() { stream(piece) } else { Ok(()) };
    let mut generation = generate(engine.as_mut(), &mut text, &request, interrupted, &mut sink)?;
    generation.timings.load_seconds = load_seconds;
    arguments.report(engine.as_ref(), &request, &generation)?;
    Ok(match generation.finish {
        Finish::Interrupted => Outcome::Interrupted,
        _ => Outcome::Done,
    })
}

/// Shows a piece of text at once.
fn stream(piece: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(piece.as_bytes())?;
    out.flush()
}

/// Prints the numbers of a prompt's tokens on a line, and those of each text on another; a text without tokens is an empty
/// line.
fn show_tokens<'a>(prompt: &'a [u32], texts: impl IntoIterator<Item = &'a [u32]>) -> io::Result<()> {
    let mut lines = std::iter::once(prompt).chain(texts);
    lines.try_for_each(|ids| stream(&(listing::ids_line(ids) + "\n")))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    model: &'a str,
    device: &'a str,
    prompt_ids: &'a [u32],
    output_ids: &'a [u32],
    text: &'a str,
    finish: Finish,
    timings: Timings,
}

impl Arguments {
    /// What the load bar calls the model.
    fn model_name(&self) -> String {
        let name = self.model.as_ref().and_then(|path| path.file_name());
        name.map_or("the bundled model".into(), |name| name.to_string_lossy().into_owned())
    }

    /// Whether text is shown as it comes, rather than something else at the end.
    fn streams(&self) -> bool {
        !self.json && !self.show_tokens
    }

    fn request(&self, model: &Model, prompt: &str, mut sampling: SampleOptions) -> anyhow::Result<Request> {
        sampling.suppress = model.tokenizer.suppressed().to_vec();
        Ok(Request {
            prompt_ids: self.prompt.ids(model, prompt)?,
            limit: self.tokens,
            stops: self.stop.clone(),
            ignore_eos: self.ignore_eos,
            sampling,
        })
    }

    fn engine<'m>(
        &self,
        model: &'m Model,
        request: &Request,
        progress: &mut dyn FnMut(u64, u64),
    ) -> anyhow::Result<Box<dyn Engine + 'm>> {
        let requested = self.ctx.map(|tokens| tokens as usize);
        let prompt = request.prompt_ids.len();
        let context = context::choose(requested, prompt, request.limit, model.spec.context_length)?;
        let threads = self.threads.map(usize::from);
        let options = EngineOptions {
            device: self.device,
            context,
            threads,
            sequences: usize::from(self.parallel),
            exact: false,
            kv: self.cache.kv_type,
            tuning: self.tuning.source()?,
        };
        Ok(model.engine(&options, progress)?)
    }

    /// The JSON object, the numbers, or the line's end on a terminal; then the statistics.
    fn report(&self, engine: &dyn Engine, request: &Request, generation: &Generation) -> anyhow::Result<()> {
        let description = engine.description();
        let (model, device) = (description.model.as_str(), description.device.as_str());
        let Generation {
            output_ids,
            text,
            finish,
            timings,
        } = generation;
        if self.json {
            let prompt_ids = &request.prompt_ids;
            let (finish, timings) = (*finish, *timings);
            output::print_json(&Answer {
                model,
                device,
                prompt_ids,
                output_ids,
                text,
                finish,
                timings,
            })?;
        } else if self.show_tokens {
            show_tokens(&request.prompt_ids, [output_ids.as_slice()])?;
        } else if io::stdout().is_terminal() && !text.ends_with('\n') {
            stream("\n")?;
        }
        if !self.quiet {
            let memory_bytes = description.weight_bytes + description.kv_bytes;
            output::note(&Stats {
                model,
                device,
                timings: *timings,
                memory_bytes,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = std::iter::once("generate").chain(line.split_whitespace());
        Line::try_parse_from(words)
            .map(|line| line.arguments)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_is_greedy() {
        let arguments = parse("").unwrap();
        assert!(arguments.sampling.options().greedy());
        assert_eq!((arguments.tokens, arguments.device), (128, DeviceChoice::Auto));
    }

    #[test]
    fn sampling_settings_arrive() {
        let line = "--temp 0.5 --top-k 3 --top-p 0.8 --min-p 0.1 --seed 7 --repeat-penalty 1.5 --repeat-last-n 9";
        let expected = SampleOptions {
            temperature: 0.5,
            top_k: 3,
            top_p: 0.8,
            min_p: 0.1,
            seed: 7,
            repeat_penalty: 1.5,
            repeat_last_n: 9,
            suppress: vec![],
        };
        assert_eq!(parse(line).unwrap().sampling.options(), expected);
    }

    #[test]
    fn one_prompt_at_a_time() {
        assert!(parse("--prompt a --prompt-file b").is_err());
        assert!(parse("--prompt a -").is_err());
        assert!(parse("a").is_err());
        assert!(parse("-").unwrap().prompt.stdin.is_some());
        assert!(parse("--prompt-file -").is_ok());
    }

    #[test]
    fn numbers_have_limits() {
        for line in [
            "--ctx 0",
            "--threads 0",
            "--threads 2000",
            "-n -1",
            "--device gpu",
            "--temp warm",
            "--seed -1",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn texts_together_have_a_limit() {
        assert_eq!(
            (parse("").unwrap().parallel, parse("--parallel 8").unwrap().parallel),
            (1, 8)
        );
        assert!(parse("--parallel 0").is_err() && parse("--parallel 65").is_err());
    }

    #[test]
    fn a_system_message_needs_a_chat() {
        assert!(parse("--system x").is_err());
        assert!(parse("--chat --system x").is_ok());
    }

    #[test]
    fn stop_strings_add_up() {
        assert_eq!(parse("--stop a --stop b").unwrap().stop, ["a", "b"]);
    }
}
