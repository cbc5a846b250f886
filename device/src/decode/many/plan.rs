//! The launches of a layer and of a step's end for several sequences, as data (host).

use super::Streams;
use super::advance::{Next, advance};
use super::down::down;
use super::enter::enter;
use super::gateup::gateup;
use super::head::head;
use super::project::project;
use super::qkv::qkv;
use super::router::router;
use crate::decode::attention::many::attention_of_many;
use crate::decode::attention::{AttentionBuffers, AttentionPlan};
use crate::decode::gateup::{ExpertShape, GateUp};
use crate::decode::head::{Best, HeadShape};
use crate::decode::norm_qkv::QkvShape;
use crate::decode::plan::{LayerCache, LayerShape, LayerWeights};
use crate::decode::rows::Matrix;
use crate::decode::state::StepState;
use crate::shape::ShapeError;
use cuda_std::DevicePtr;
use cuda_std::launch::PreparedLaunch;

/// Blocks that share a key head's cache: fewer than for one sequence, since each has its own. Not fewer for more of them,
/// or a sequence's sums would depend on their number.
const SPLITS: u32 = 16;

/// Memory that a step works in, the same for all layers; of everything as much a sequence.
#[derive(Clone, Copy, Debug)]
pub struct ManyBuffers {
    /// The residual streams.
    pub streams: Streams,
    /// q | k | v.
    pub qkv: DevicePtr<f32>,
    /// The attention output of all heads.
    pub attention: DevicePtr<f32>,
    /// [`AttentionPlan::workspace_floats`] floats.
    pub partial: DevicePtr<f32>,
    /// A zeroed counter for each query head.
    pub counters: DevicePtr<u32>,
    /// The router's logits.
    pub router_logits: DevicePtr<f32>,
    /// The chosen experts, [`MAX_USED`](crate::decode::choices::MAX_USED) words.
    pub choices: DevicePtr<u64>,
    /// The chosen experts' activations, `[rank][ff]`.
    pub h: DevicePtr<f32>,
    /// The page tables, `pages` entries each.
    pub tables: DevicePtr<u32>,
    /// Entries of a page table.
    pub pages: u32,
    /// The step states.
    pub states: DevicePtr<StepState>,
}

/// How attention is launched for several sequences, from how it is for one.
#[must_use]
pub fn shared_attention(plan: AttentionPlan) -> AttentionPlan {
    plan.with(plan.splits.min(SPLITS), plan.warps).clustered(false)
}

/// The launches of a layer for `sequences` sequences, in the order of [`layer`](crate::decode::plan::layer).
///
/// # Errors
/// The first shape that a kernel does not take.
pub fn layer(
    shape: &LayerShape,
    w: &LayerWeights,
    cache: &LayerCache,
    b: &ManyBuffers,
    sequences: u32,
) -> Result<[PreparedLaunch; 6], ShapeError> {
    let ExpertShape {
        columns, eps, experts, ..
    } = shape.experts;
    let matrices = QkvShape {
        matrices: w.qkv,
        columns,
        eps,
    };
    let gate_up = GateUp { gate: w.gate, up: w.up };
    let (attention, routed) = (shared_attention(shape.attention), (b.router_logits, b.choices));
    let heads = AttentionBuffers {
        qkv: b.qkv,
        q_norm: w.q_norm,
        k_norm: w.k_norm,
        frequencies: w.frequencies,
        state: b.states,
        table: b.tables,
        keys: cache.keys,
        values: cache.values,
        partial: b.partial,
        counters: b.counters,
        out: b.attention,
    };
    let (n, width) = (sequences, shape.attention.out_floats());
    Ok([
        qkv(b.streams, w.qkv_bias, b.qkv, matrices, n)?,
        attention_of_many(&attention, heads, n, b.pages)?,
        project(b.attention, b.streams, w.expert_norm, w.output, width, n)?,
        router(w.router, b.streams, routed, experts, columns, eps, n)?,
        gateup(b.streams, routed.0, b.h, routed.1, gate_up, shape.experts, n)?,
        down(b.h, routed.1, b.streams, w.next_norm, w.down, shape.experts, n)?,
    ])
}

/// The launch between the embeddings and the first layer: `norm` are the gains of the first norm.
///
/// # Errors
/// Columns that the kernel does not take.
pub fn beginning(
    b: &ManyBuffers,
    norm: DevicePtr<f32>,
    columns: u32,
    sequences: u32,
) -> Result<PreparedLaunch, ShapeError> {
    enter(b.streams, norm, columns, sequences)
}

/// The end of a greedy step: head, logits, and the next tokens.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// The vocabulary's matrix.
    pub matrix: Matrix,
    /// Its shape.
    pub shape: HeadShape,
    /// The logits of each sequence, `stride` floats apart.
    pub logits: DevicePtr<f32>,
    /// Floats from one sequence's logits to the next one's.
    pub stride: u32,
    /// A candidate for each sequence and block of the head.
    pub best: DevicePtr<Best>,
    /// Blocks of the head at most.
    pub blocks: u32,
    /// Where the next tokens go.
    pub next: Next,
}

/// The launches that end a greedy step.
///
/// # Errors
/// The first shape that a kernel does not take.
pub fn ending(e: &Ending, b: &ManyBuffers, sequences: u32) -> Result<[PreparedLaunch; 2], ShapeError> {
    let logits = (e.logits, e.stride);
    let head = head(b.streams, logits, e.best, e.matrix, e.shape, e.blocks, sequences)?;
    let candidates = head.config().grid[0];
    Ok([head, advance(e.best, candidates, e.next, sequences)?])
}
