//! Choosing the next token from logits. See [`Sampler`] for the order of the steps.

mod options;
mod philox;
mod sampler;

pub use options::{OptionError, SampleOptions};
pub use philox::{philox4x32, uniform};
pub use sampler::{Sampler, argmax};
