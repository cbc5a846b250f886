//! The CPU engine: any model that [`crate::model`] describes, in reference or in practical arithmetic.

mod attention;
mod bandwidth;
mod cache;
mod engine;
mod feed_forward;
mod inputs;
mod layers;
mod matrix;
mod pool;
mod product;
mod rotation;
mod simd;
mod weights;

#[cfg(test)]
mod oracle_tests;
#[cfg(all(test, feature = "bundled-model"))]
mod tests;

pub use engine::{CpuEngine, CpuOptions, Numerics, OpenError};
pub use matrix::CpuMatrix;
