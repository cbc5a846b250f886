//! The command line: arguments, exit codes, and what goes to which stream.
//!
//! Commands are thin: each turns its arguments into a call of the library and prints the answer. Answers go to
//! standard output, everything else to standard error.
//!
//! Exit codes: 0 done; 1 the input or the run failed, with one line `error: …`; 2 the arguments are wrong.

mod inspect;
mod output;

use clap::{ArgAction, Parser, Subcommand};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

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
    Inspect(inspect::Arguments),
}

/// How a command that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
}

/// Reads the arguments, runs the command, and says how the process shall end.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    log(cli.verbose);
    let result = match cli.command {
        Command::Inspect(arguments) => inspect::run(arguments),
    };
    exit_code(result)
}

fn exit_code(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error leaves nobody to tell.
            let _ = writeln!(std::io::stderr(), "error: {}", one_line(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

/// An error's text without its line breaks: one error, one line.
fn one_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
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
        .with_ansi(ansi);
    subscriber.without_time().init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn errors_are_one_line() {
        assert_eq!(one_line("a: b\n  c\n\nd"), "a: b; c; d");
    }
}
