//! The GPU engine: a model's steps as plans of launches, over any [`Backend`].
//!
//! Data flows one way: [`ModelSpec`](crate::model::ModelSpec) → [`path`] (which kernels take it, where does each weight
//! go) → [`weights`] (one piece of memory, filled while it streams) → a plan → a recording that the engine replays.
//! Nothing is allocated on the device after load.
//!
//! There are three kinds of plans over the same state, cache and buffers: [`layers`] and [`decode`] make the fused one of
//! models with experts and [`dense`] that of models without, fast and for the shapes they know; [`general`] makes one for
//! any model, which is the reference too. The fused ones' [`prompt`]s go many tokens at a time.
//!
//! [`batch`] is the step of several sequences at once. A step's end is a plan's too: the highest logit, or the device's sampler where the settings ask for it.
//!
//! [`emulated`] runs the same plans on the host, [`cuda`] on an NVIDIA GPU.

pub mod backend;
pub mod batch;
pub mod buffers;
pub mod cuda;
pub mod decode;
pub mod dense;
pub mod emulated;
pub mod engine;
pub mod general;
pub mod layers;
pub mod matrix;
mod observe;
pub mod pages;
pub mod path;
pub mod plan;
pub mod prefill;
pub mod prompt;
mod recorded;
mod room;
mod sampling;
pub mod target;
pub mod weights;

#[cfg(all(test, feature = "bundled-model"))]
mod tests;

pub use backend::{Backend, DeviceError};
pub use engine::GpuEngine;
pub use path::{Arithmetic, GpuOptions};
pub use room::{Needs, needs};
pub use target::Target;
