//! Compiles the self-tests of `cuda_std` to PTX, for `src/gpu_selftests.rs` to include.

use cuda_builder::{Arch, CudaBuilder};
use std::process::ExitCode;

fn main() -> ExitCode {
    let builder = CudaBuilder::new("../rust-cuda/cuda_std").feature("selftest");
    match builder.archs(Arch::BASES).embed("selftests.rs") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
