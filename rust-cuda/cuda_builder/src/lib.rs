//! Compiles device crates to PTX from a build script.
