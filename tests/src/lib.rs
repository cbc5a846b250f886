//! Whole-program, conformance and GPU tests.

pub mod assets;
pub mod cuts;
pub mod gpu;
pub mod gpu_models;
pub mod gpu_runtime;
pub mod gpu_selftests;
pub mod gpu_situations;
pub mod recast;
