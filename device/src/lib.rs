//! The GPU kernels: compiled to PTX, and to the host for emulation.
