//! The launches of a layer for the next token of each of several sequences, as data (host).
//!
//! Everything but attention is a prompt's: rows of activations do not know which sequence they belong to, an expert that
//! several rows chose is read once, and a row's result does not depend on the other rows. Attention is that of a decode
//! step ([`attention_of_many`]), so positions and pages are read on the device: the launches can be recorded.

use super::plan::{Named, PromptBuffers, PromptShape, around};
use crate::decode::attention::many::attention_of_many;
use crate::decode::attention::{AttentionBuffers, AttentionPlan};
use crate::decode::plan::{LayerCache, LayerWeights};
use crate::decode::state::StepState;
use crate::shape::ShapeError;
use cuda_std::DevicePtr;

/// Where several sequences are, and what their attention works in.
#[derive(Clone, Copy, Debug)]
pub struct ManyBuffers {
    /// The position of each.
    pub states: DevicePtr<StepState>,
    /// The page table of each, `pages` entries apart.
    pub tables: DevicePtr<u32>,
    /// Entries of a page table.
    pub pages: u32,
    /// [`AttentionPlan::workspace_floats`] floats each.
    pub partial: DevicePtr<f32>,
    /// A zeroed counter for each query head of each.
    pub counters: DevicePtr<u32>,
}

/// The launches of a layer for `sequences` sequences, a row of `b` each.
///
/// # Errors
/// The first shape that a kernel does not take.
pub fn layer_of_many(
    (shape, plan): (&PromptShape, &AttentionPlan),
    w: &LayerWeights,
    cache: &LayerCache,
    b: &PromptBuffers,
    many: &ManyBuffers,
    sequences: u32,
) -> Result<Vec<Named>, ShapeError> {
    let heads = AttentionBuffers {
        qkv: b.qkv,
        q_norm: w.q_norm,
        k_norm: w.k_norm,
        frequencies: w.frequencies,
        state: many.states,
        table: many.tables,
        keys: cache.keys,
        values: cache.values,
        partial: many.partial,
        counters: many.counters,
        out: b.attended,
    };
    let launch = attention_of_many(plan, heads, sequences, many.pages)?;
    let attention = Named {
        name: "attention",
        bytes: 0,
        launch,
    };
    around(shape, w, b, sequences, vec![attention])
}
