//! `sparkinfer inspect`: what is in a GGUF file.

use super::{Outcome, output};
use crate::inspect::Report;
use clap::Args;
use sparkinfer_gguf::Gguf;
use std::path::PathBuf;

/// Show what is in a GGUF file: metadata, tensors, types
#[derive(Args, Debug)]
pub struct Arguments {
    /// GGUF file; the first one of a split model
    file: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Prints the report.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let report = Report::new(&Gguf::open(&arguments.file)?);
    output::print(&report, arguments.json)?;
    Ok(Outcome::Done)
}
