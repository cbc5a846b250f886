//! Compiles the kernels of `device/` to PTX.
fn main() {}
