//! Shapes of attention launches (host).

#![cfg(not(target_arch = "nvptx64"))]

use super::{AttentionShape, Room, StepState};
use crate::decode::kv;
use crate::shape::ShapeError;
use cuda_std::launch::{LaunchConfig, PreparedLaunch};
use cuda_std::prelude::*;

/// Where a layer's attention reads and writes, in device memory.
#[derive(Clone, Copy, Debug)]
pub struct AttentionBuffers {
    /// `q | k | v` of the new token, f32.
    pub qkv: DevicePtr<f32>,
    /// Norm weights of a query head, or null.
    pub q_norm: DevicePtr<f32>,
    /// Norm weights of a key head, or null.
    pub k_norm: DevicePtr<f32>,
    /// The frequencies of the rotating pairs: [`table`](crate::rope::table).
    pub frequencies: DevicePtr<F32x2>,
    /// The step state.
    pub state: DevicePtr<StepState>,
    /// Page of every 64 positions.
    pub table: DevicePtr<u32>,
    /// The layer's pool of keys, f16, 16-byte aligned.
    pub keys: DevicePtr<u16>,
    /// The layer's pool of values, f16, 16-byte aligned.
    pub values: DevicePtr<u16>,
    /// [`AttentionPlan::workspace_floats`] floats, shared by all layers.
    pub partial: DevicePtr<f32>,
    /// A zeroed counter for each key head, shared by all layers.
    pub counters: DevicePtr<u32>,
    /// The output, `[head][dim]` f32.
    pub out: DevicePtr<f32>,
}

/// How a layer's attention is launched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionPlan {
    /// Dims of a head.
    pub head_dim: u32,
    /// Blocks a key head.
    pub splits: u32,
    /// Warps of a block.
    pub warps: u32,
    shape: AttentionShape,
}

impl AttentionPlan {
    /// Splits of a key head at most.
    pub const MAX_SPLITS: u32 = 64;

    /// A plan for `shape` with heads of `head_dim` dims on a GPU of `sms` multiprocessors: a block on every second one.
    ///
    /// # Errors
    /// A shape that the fast kernels do not take.
    pub fn new(shape: AttentionShape, head_dim: u32, sms: u32) -> Result<Self, ShapeError> {
        let refuse = |what: String| Err(ShapeError::new("attention", what));
        let AttentionShape {
            heads,
            kv_heads,
            rotated,
            ..
        } = shape;
        if ![64, 128, 256].contains(&head_dim) {
            return refuse(format!("heads of {head_dim} dims, 64, 128 or 256 are supported"));
        }
        let widest = if head_dim == 256 { 8 } else { 16 };
        if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) || heads / kv_heads > widest {
            return refuse(format!(
                "{heads} query heads on {kv_heads} key heads, 1 to {widest} each are supported"
            ));
        }
        if rotated > head_dim || !rotated.is_multiple_of(2) {
            return refuse(format!(
                "{rotated} of {head_dim} dims rotate, an even part is supported"
            ));
        }
        if shape.page_stride < kv::page_elements(kv_heads, head_dim) || !shape.page_stride.is_multiple_of(8) {
            return refuse(format!(
                "pages {} elements apart, at least {} and a multiple of 8 is needed",
                shape.page_stride,
                kv::page_elements(kv_heads, head_dim)
            ));
        }
        if shape.softcap != 0.0 || shape.least_chunks == 0 {
            return refuse(format!(
                "score cap {} or no least share, neither is supported",
                shape.softcap
            ));
        }
        // Half the multiprocessors: the next launch's blocks find room on the others and bring their weights.
        let splits = (sms / (2 * kv_heads)).clamp(1, Self::MAX_SPLITS);
        Ok(Self {
            head_dim,
            splits,
            warps: 8,
            shape,
        })
    }

    /// The same with another number of blocks a key head and warps a block, for tuning.
    #[must_use]
    pub fn with(mut self, splits: u32, warps: u32) -> Self {
        (self.splits, self.warps) = (splits.clamp(1, Self::MAX_SPLITS), warps.clamp(1, 8));
        self
    }

    /// Floats of workspace that the launch needs.
    #[must_use]
    pub fn workspace_floats(&self) -> usize {
        self.splits as usize * self.shape.heads as usize * (self.head_dim as usize + 2)
    }

    /// Floats of the output: heads times their dims.
    #[must_use]
    pub fn out_floats(&self) -> u32 {
        self.shape.heads * self.head_dim
    }

    fn wide(&self) -> bool {
        self.shape.heads / self.shape.kv_heads > 8
    }

    fn shared_bytes(&self) -> u32 {
        match (self.head_dim, self.wide()) {
            (64, false) => Room::<64, false>::bytes(self.warps),
            (128, false) => Room::<128, false>::bytes(self.warps),
            (_, false) => Room::<256, false>::bytes(self.warps),
            (64, true) => Room::<64, true>::bytes(self.warps),
            (_, true) => Room::<128, true>::bytes(self.warps),
        }
    }
}

/// The attention launch of a layer.
#[must_use]
pub fn attention(plan: &AttentionPlan, b: AttentionBuffers) -> PreparedLaunch {
    let config = LaunchConfig::shaped([plan.splits, plan.shape.kv_heads, 1], [32 * plan.warps, 1, 1])
        .shared(plan.shared_bytes())
        .pdl(true);
    let prepare = match (plan.head_dim, plan.wide()) {
        (64, false) => super::attention_64::prepare,
        (128, false) => super::attention_128::prepare,
        (_, false) => super::attention_256::prepare,
        (64, true) => super::attention_64_wide::prepare,
        (_, true) => super::attention_128_wide::prepare,
    };
    prepare(
        config,
        b.qkv,
        b.q_norm,
        b.k_norm,
        b.frequencies,
        b.state,
        b.table,
        b.keys,
        b.values,
        b.partial,
        b.counters,
        b.out,
        plan.shape,
    )
}
