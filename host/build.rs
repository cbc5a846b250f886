//! Compiles the kernels of `device/` to PTX, for `src/cuda/embedded.rs` to include.

use cuda_builder::{Arch, CudaBuilder};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut builder = CudaBuilder::new("../device").archs(Arch::BASES);
    if std::env::var_os("CARGO_FEATURE_TIMELINE").is_some() {
        builder = builder.feature("timeline");
    }
    match builder.embed("kernels.rs") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
