//! `sparkinfer kernels`: the GPU kernels inside the program.

use super::{Outcome, output};
use crate::kernels::{Report, write_ptx};
use clap::Args;
use std::path::PathBuf;

/// List the GPU kernels: what each computes and, with a GPU, what it uses
#[derive(Args, Debug)]
pub struct Arguments {
    /// Write the PTX for this architecture (sm_90, ...) instead of listing
    #[arg(long, value_name = "ARCH", requires = "out")]
    ptx: Option<String>,
    /// Folder that the PTX is written to
    #[arg(long, value_name = "DIR", requires = "ptx")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long, conflicts_with = "ptx")]
    json: bool,
}

/// Prints the list, or writes the PTX and prints where.
pub fn run(arguments: Arguments) -> anyhow::Result<Outcome> {
    if let (Some(arch), Some(folder)) = (&arguments.ptx, &arguments.out) {
        eprintln!("wrote {}", write_ptx(arch, folder)?.display());
    } else {
        output::print(&Report::new(), arguments.json)?;
    }
    Ok(Outcome::Done)
}
