//! The GPU engine: a model's steps as plans of launches, over any [`Backend`].
//!
//! Data flows one way: [`ModelSpec`](crate::model::ModelSpec) → [`layers`] (does every kernel take it, where does each
//! weight go) → [`weights`] (one piece of memory, filled while it streams) → [`decode`] (the plan) → a recording that
//! the engine replays. Nothing is allocated on the device after load.
//!
//! [`emulated`] runs the same plans on the host, [`cuda`] on an NVIDIA GPU.

pub mod backend;
pub mod buffers;
pub mod cuda;
pub mod decode;
pub mod emulated;
pub mod engine;
pub mod layers;
pub mod matrix;
mod observe;
pub mod pages;
pub mod plan;
pub mod weights;

#[cfg(all(test, feature = "bundled-model"))]
mod tests;

pub use backend::{Backend, DeviceError};
pub use engine::{GpuEngine, Needs, needs};
