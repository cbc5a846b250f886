//! Reads a great many mutated GGUF files: every one must be refused or used without a panic.
//!
//! `cargo run --release -p sparkinfer-tests --bin mutate -- --count 1000000 [--seed 1]`

use std::process::ExitCode;

use sparkinfer_gguf::test_support::mutate::{Mutator, Tally};

/// What the command line asks for.
struct Options {
    count: u64,
    seed: u64,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        count: 1_000_000,
        seed: 1,
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse().ok());
        let value = value.ok_or_else(|| format!("{name} wants a number"))?;
        match name.as_str() {
            "--count" => options.count = value,
            "--seed" => options.seed = value,
            _ => return Err(format!("unknown option {name}; use --count N and --seed N")),
        }
    }
    Ok(options)
}

/// A panic ends the program and names the file's number, which with the seed makes it again.
fn run(options: &Options) -> Result<String, String> {
    let mut mutator = Mutator::new(options.seed).map_err(|e| e.to_string())?;
    let mut tally = Tally::default();
    for number in 0..options.count {
        let file = mutator.next_file();
        let attempt = std::panic::AssertUnwindSafe(|| tally.try_file(file));
        if std::panic::catch_unwind(attempt).is_err() {
            return Err(format!("file {number} of seed {} made the reader panic", options.seed));
        }
    }
    let Tally { opened, refused, rows } = tally;
    Ok(format!(
        "{} files: {opened} opened, {refused} refused, {rows} rows dequantised, no panic",
        options.count
    ))
}
