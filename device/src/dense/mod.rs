//! The kernels of a decode step at batch size 1, fused for layers of attention and a gated network.
//!
//! | launch | module | reads |
//! |---|---|---|
//! | norm, Q, K and V, biases | [`qkv`] | residual stream |
//! | head norms, rotation, cache, attention | [`attention`](crate::decode::attention) | q, k, v, cache |
//! | output projection, residual | [`project`] | attention output |
//! | norm, gate and up, activation | [`gated`] | residual stream |
//! | down, residual | [`project`] | h |
//!
//! Where a norm stands behind an operation, the projection leaves its result [`apart`], and the next operation's first
//! launch adds it; behind the last operation [`residual`] does. Before the first layer [`residual`] completes the stream;
//! behind the last one come [`head`] and [`advance`](crate::decode::advance).
//!
//! Weights lie in tiles of any [`Kind`]; vectors that products read have room for whole tiles of 256 columns, with zeros
//! behind their end. Every launch may be a programmatic dependent one: weights are on their way before the wait,
//! everything else is read and written behind it, so a step needs only that its embedding waits before it lets its
//! successor start.

pub mod apart;
pub mod gated;
pub mod head;
pub mod matrix;
#[cfg(not(target_arch = "nvptx64"))]
pub mod plan;
pub mod project;
#[cfg(not(target_arch = "nvptx64"))]
pub mod prompt;
pub mod qkv;
pub mod residual;
mod rows;

pub use matrix::{Kind, Matrix};
