//! The NVIDIA driver opened at run time: every cu* symbol through a jump table.
