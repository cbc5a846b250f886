//! `sparkinfer inspect`: what is in a GGUF file.

use super::cache::CacheArguments;
use super::{Outcome, output};
use crate::inspect::Report;
use clap::{Args, value_parser};
use sparkinfer_gguf::Gguf;
use std::path::PathBuf;

/// Show what is in a GGUF file: metadata, tensors, types; and the memory it takes
#[derive(Args, Debug)]
pub struct Arguments {
    /// GGUF file; the first one of a split model
    file: PathBuf,
    /// Room for tokens, where memory is predicted [default: 4096, or the model's context]
    #[arg(long, alias = "ctx-size", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    ctx: Option<u32>,
    #[command(flatten)]
    cache: CacheArguments,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Prints the report.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    let context = arguments.ctx.map(|tokens| tokens as usize);
    let kv = arguments.cache.kv_type.unwrap_or_default();
    let report = Report::new(&Gguf::open(&arguments.file)?, context, kv);
    output::print(&report, arguments.json)?;
    Ok(Outcome::Done)
}
