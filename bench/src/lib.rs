//! Benchmarks: what their programs share.
