//! `sparkinfer doctor`: what this machine has and what the program would do with it.

use super::{Outcome, output};
use crate::doctor::Report;
use clap::Args;

/// Show the driver, the GPUs, the kernels, and what `generate` would use
#[derive(Args, Debug)]
pub struct Arguments {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Prints the report.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    output::print(&Report::new(), arguments.json)?;
    Ok(Outcome::Done)
}
