//! Project chores, run as `cargo xtask COMMAND`: every script of the repository is a command here.

mod ptx_gate;
mod tidy;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Project chores.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the limits on functions, files and text that CONTRIBUTING.md states.
    Tidy,
    /// Compile the kernels for every GPU and hold the code against the checked-in counts and budgets.
    PtxGate {
        /// Write the table of counts instead of comparing with it.
        #[arg(long)]
        bless: bool,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Tidy => tidy::run(&workspace_root()),
        Command::PtxGate { bless } => ptx_gate::run(&workspace_root(), bless),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root folder: the parent of this crate's.
fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
