//! The GPU kernels: compiled to PTX, and to the host for emulation.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod layout;
#[cfg(not(target_arch = "nvptx64"))]
pub mod testing;
