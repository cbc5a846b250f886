//! The kernels of a decode step at batch size 1, fused for mixture-of-experts layers.
//!
//! | launch | module | reads |
//! |---|---|---|
//! | norm, Q, K and V | [`norm_qkv`] | residual stream |
//! | head norms, rotation, cache, attention | [`attention`] | q, k, v, cache |
//! | output projection, residual, [`router`] | [`o_proj`] | attention output |
//! | choice of experts, norm, gate and up, SwiGLU | [`gateup`] | router's sums, residual stream |
//! | down, weighted sum, residual | [`down`] | choices, h |
//!
//! Between embedding and first layer [`residual`] completes the stream;
//! behind the last layer come [`head`] and [`advance`], or [`sample`] in place of the latter. Every launch may be a
//! programmatic dependent one; what may be read before the wait follows from one rule: [`gateup`] (and the embedding at the
//! start of a step) waits before it lets its successor start, so whatever was written before it is visible to every later
//! launch from its first instruction.
//!
//! A step takes its token and position from a [`StepState`] on the device and leaves the next ones there: a captured
//! graph of a step, replayed, decodes.
//!
//! Launch helpers (host only) compute grid, block and shared memory from the shapes and refuse, in words, what the
//! kernels do not take. [`plan`] puts the launches of a layer and of a step's end together.

pub mod advance;
pub mod attention;
pub mod choices;
pub mod columns;
pub mod down;
pub mod gateup;
pub mod head;
pub mod kv;
pub mod many;
pub mod marks;
pub mod meeting;
pub mod norm_qkv;
pub mod o_proj;
#[cfg(not(target_arch = "nvptx64"))]
pub mod plan;
pub mod residual;
pub mod rope;
pub mod router;
pub mod rows;
pub mod sample;
pub mod state;
pub mod topk;

pub use state::StepState;
