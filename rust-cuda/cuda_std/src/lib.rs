//! Rust-CUDA shaped device library over the compiler own NVPTX backend, with a host emulator.
