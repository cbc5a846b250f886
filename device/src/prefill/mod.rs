//! The kernels of a prompt: a chunk of tokens at a time through mixture-of-experts layers.
//!
//! Weights are read as the decode kernels read them, from the same tiles; one fetch of a tile serves up to 32 tokens.
//!
//! | launch | module | reads |
//! |---|---|---|
//! | norm, split | [`split`] | residual stream |
//! | Q, K and V | [`gemm`] | split activations |
//! | head norms, rotation, cache | [`append`] | q, k, v |
//! | attention | [`attention`] | queries, cache |
//! | split, output projection, residual | [`split`], [`gemm`] | attention output |
//! | norm, split | [`split`] | residual stream |
//! | router | [`router`] | residual stream |
//! | choice of experts, grouping by expert | [`route`] | logits |
//! | gate and up, SwiGLU | [`gateup`] | split activations of each expert's tokens |
//! | split, down | [`split`], [`down`] | h |
//! | weighted sum, residual | [`combine`] | down's rows |
//!
//! **Precision**: activations are pairs of f16 ([`record`]), 22 bits; weights enter the products as the integers that
//! they are in the file, and sums are f32. So a prompt's logits are those of the decode kernels but for rounding.
//!
//! Every kernel waits for the launch before it reads anything, and every sum has a fixed order. [`plan`] puts the
//! launches of a layer together; counts and positions are arguments, so that a grid has no more blocks than work.

pub mod append;
pub mod attention;
mod block_product;
mod code_product;
pub mod combine;
pub mod down;
pub mod expert_matrix;
mod float_product;
pub mod gated_split;
pub mod gateup;
pub mod gemm;
pub mod matrix;
#[cfg(not(target_arch = "nvptx64"))]
pub mod plan;
pub mod post;
pub mod product;
pub mod rare;
pub mod record;
pub mod route;
pub mod router;
pub mod split;
mod two_bit_product;
