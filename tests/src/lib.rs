//! Whole-program, conformance and GPU tests.

pub mod assets;
