//! Whole-program, conformance and GPU tests.
