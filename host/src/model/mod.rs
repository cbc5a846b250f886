//! Models as data.
//!
//! [`ModelSpec::from_gguf`] turns a file into hyper-parameters and a list of layers, each a list of
//! [`Part`]s with checked references to the file's tensors. Engines read only this: what makes one
//! architecture differ from another is in `arch/`, a small file each, and nowhere else.

mod arch;
mod error;
mod memory;
mod params;
mod rope;
mod spec;
mod tensors;
mod unused;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

pub use arch::architectures;
pub use memory::{KvType, Memory};
pub use rope::{Rope, RopeLayout, RopeScaling};
pub use spec::{Activation, Attention, Dense, Embedding, Gating, Layer, ModelSpec, Moe, Operation, Part, SharedExpert};
pub use tensors::{Linear, Matrix, Vector};
