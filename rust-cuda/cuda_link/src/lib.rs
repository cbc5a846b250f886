//! The NVIDIA driver, opened at run time.
//!
//! Crates such as `cust` call the driver through `extern "C"` declarations that the linker must resolve. This crate
//! resolves them without CUDA on the machine: it defines every `cu…` function that `cust_raw` declares as a jump
//! through a table ([`stubs`]), and [`Driver::open`] fills the table from `libcuda.so.1`. One program therefore runs
//! on machines with and without a GPU: until a driver is open every call answers `CUDA_ERROR_NOT_INITIALIZED`, and a
//! function that the driver is too old to have answers `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! The names carry the driver's version suffixes (`cuMemAlloc_v2`), so looking them up as exported symbols finds the
//! form that the declarations mean.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("cuda_link knows the driver on Linux (WSL2 included) on x86-64 and 64-bit Arm only");

#[macro_use]
mod names;
pub mod api;
mod open;
mod status;
pub mod stubs;

pub use open::{Driver, OLDEST_DRIVER};
pub use status::{CudaVersion, Error, Status};
