//! The command line: arguments, exit codes, and what goes to which stream.
//!
//! Commands are thin: each turns its arguments into a call of the library and prints the answer. Answers go to
//! standard output, everything else to standard error.
//!
//! Exit codes: 0 done; 1 the input or the run failed, with one line `error: …`; 2 the arguments are wrong;
//! 130 interrupted by Ctrl-C or a termination signal, after printing what there was.

mod accuracy;
mod bench;
mod cache;
mod doctor;
mod engine;
mod generate;
mod inspect;
mod interrupt;
mod kernels;
mod output;
mod peer;
mod perplexity;
mod progress;
mod repeat;
mod synth;
mod tokenize;
mod trace_diff;
mod tune;
mod tuning;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

/// Exit code after Ctrl-C: 128 + SIGINT, as shells use it.
const INTERRUPTED: u8 = 130;

/// Runs large language models, one sequence at a time, as fast as the machine can.
#[derive(Parser)]
#[command(name = "sparkinfer", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say more on standard error: -v what is done, -vv details, -vvv everything
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    Generate(generate::Arguments),
    Inspect(inspect::Arguments),
    Perplexity(perplexity::Arguments),
    Tokenize(tokenize::Arguments),
    Kernels(kernels::Arguments),
    Synth(synth::Arguments),
    Bench(bench::Arguments),
    Repeat(repeat::Arguments),
    Tune(tune::Arguments),
    Accuracy(accuracy::Arguments),
    TraceDiff(trace_diff::Arguments),
    Doctor(doctor::Arguments),
}

/// How a command that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Interrupted,
}

/// Reads the arguments, runs the command, and says how the process shall end.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    log(cli.verbose);
    let result = match cli.command {
        Command::Generate(arguments) => generate::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Perplexity(arguments) => perplexity::run(arguments),
        Command::Tokenize(arguments) => tokenize::run(arguments),
        Command::Kernels(arguments) => kernels::run(arguments),
        Command::Synth(arguments) => synth::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Repeat(arguments) => repeat::run(arguments),
        Command::Tune(arguments) => tune::run(arguments),
        Command::Accuracy(arguments) => accuracy::run(arguments),
        Command::TraceDiff(arguments) => trace_diff::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
    };
    exit_code(result)
}

fn exit_code(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&format_args!("error: {}", one_line(&format!("{error:#}"))));
            ExitCode::FAILURE
        }
    }
}

/// Ends the process over arguments that parse, but make no sense.
fn misused(message: &str) -> ! {
    Cli::command().error(ErrorKind::ValueValidation, message).exit()
}

/// An error's text without its line breaks: one error, one line. What else would steer a terminal is left out, as it may
/// come from a file or from another program.
fn one_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
        .replace(char::is_control, "")
}

fn log(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let ansi = std::io::stderr().is_terminal();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        // It would say on standard error that standard error cannot be written, and panic.
        .log_internal_errors(false)
        .with_ansi(ansi);
    subscriber.without_time().init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn errors_are_one_line() {
        assert_eq!(one_line("a: b\n  c\n\nd"), "a: b; c; d");
        assert_eq!(one_line("a\u{1b}[31m\0b"), "a[31mb");
    }
}
