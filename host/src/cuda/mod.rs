//! NVIDIA GPUs: finding them, loading the kernels, memory, launches, graphs, timers.
//!
//! [`probe`] says what there is. [`Gpu::open`] takes one GPU and makes it ready: a [`Context`], a [`Stream`] and the
//! embedded kernels as a [`Module`]. Kernels are launched through their typed `prepare` and any
//! [`Launcher`](cuda_std::launch::Launcher): [`Gpu`] is one, at once or, inside [`Graph::capture`], into a graph.
//!
//! Invariants: nothing here reads the environment but for the user's cache folder; every object that owns something
//! of the driver's holds the context that it belongs to; the default stream is never used.

pub mod bandwidth;
mod buffer;
pub(crate) mod cache;
mod compile;
mod context;
mod device;
mod embedded;
mod error;
mod graph;
mod launch;
mod module;
mod staging;
mod timer;

pub use buffer::{Buffer, Pinned};
pub use context::{Context, Stream};
pub use device::{DeviceInfo, OLDEST_CAPABILITY, driver_version, probe, select};
pub use embedded::{DEVICE_COMPILER, EmbeddedPtx, MODULES, best_for};
pub use error::{Error, Result};
pub use graph::Graph;
pub use launch::Gpu;
pub use module::{KernelResources, Module};
pub use staging::Staging;
pub use timer::Timer;
