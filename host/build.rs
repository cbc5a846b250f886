//! Compiles the kernels of `device/` to PTX, for `src/cuda/embedded.rs` to include.

use cuda_builder::{Arch, CudaBuilder};
use std::process::ExitCode;

fn main() -> ExitCode {
    match CudaBuilder::new("../device").archs(Arch::BASES).embed("kernels.rs") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
