//! Compiles a device crate to PTX, with the Rust compiler's own NVPTX backend and nothing of CUDA.
//!
//! In a build script, [`CudaBuilder::embed`] compiles the kernels and writes a table of them, compressed, for the
//! program to include:
//!
//! ```no_run
//! # fn main() -> Result<(), cuda_builder::Error> {
//! cuda_builder::CudaBuilder::new("../device").archs(cuda_builder::Arch::BASES).embed("kernels.rs")?;
//! # Ok(())
//! # }
//! ```
//!
//! Elsewhere (tests, checks) [`CudaBuilder::build`] returns the PTX text.
//!
//! The names and shapes follow Rust-CUDA's crate of the same name. Options of it that this backend cannot honour are
//! errors and never ignored.

mod arch;
mod builder;
mod compiler;
mod embed;
mod inner;
mod limits;

pub use arch::Arch;
pub use builder::{CudaBuilder, DebugInfo, Error, Ptx};
pub use compiler::{Compiler, NoCompiler, OLDEST_COMPILER, Version, discover};
