//! Benchmarks: what their programs share.

pub mod kernels;
