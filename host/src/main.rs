//! The `sparkinfer` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    sparkinfer::cli::run()
}
