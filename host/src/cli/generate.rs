//! `sparkinfer generate`: text after a prompt.

use super::{Outcome, interrupt};
use crate::device::DeviceChoice;
use crate::generate::prompt::{self, Source};
use crate::sample::SampleOptions;
use clap::{Args, value_parser};
use std::path::PathBuf;

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
    /// End the text before this string; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Go on after an end-of-text token
    #[arg(long)]
    ignore_eos: bool,
    /// Where to compute: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: DeviceChoice,
    /// Threads of the CPU engine [default: one per core]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print one JSON object (prompt_ids, output_ids, text, timings) at the end instead of streaming text
    #[arg(long)]
    json: bool,
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
        Source::choose(self.prompt.clone(), file, self.stdin.is_some(), prompt::stdin_has_data())
    }
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
struct SamplingArguments {
    /// Temperature; 0 always takes the likeliest token, and the other settings of chance do nothing
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temp: f32,
    /// Choose among the K likeliest tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 40)]
    top_k: usize,
    /// Choose among the likeliest tokens that together have this probability; 1 for all
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    top_p: f32,
    /// Choose among tokens at least this likely, relative to the likeliest; 0 for all
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    min_p: f32,
    /// Seed of the random numbers: the same seed gives the same text
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Make recent tokens less likely by this factor; 1 for not
    #[arg(long, value_name = "X", default_value_t = 1.0)]
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
