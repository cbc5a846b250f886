//! Shapes of attention launches (host).

#![cfg(not(target_arch = "nvptx64"))]

use super::meet::{FAR, NEAR, PARTS};
use super::near::Near;
use super::{AttentionShape, Parts, Room, StepState};
use crate::decode::kv::{CHUNK, KvFormat};
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
    /// The layer's pool of keys, 16-byte aligned.
    pub keys: DevicePtr<u8>,
    /// The layer's pool of values, 16-byte aligned.
    pub values: DevicePtr<u8>,
    /// [`AttentionPlan::workspace_floats`] floats, shared by all layers.
    pub partial: DevicePtr<f32>,
    /// A zeroed counter for each query head, shared by all layers.
    pub counters: DevicePtr<u32>,
    /// The output, `[head][dim]` f32; not written where it is left in [parts](AttentionPlan::parts), which lie in `partial`.
    pub out: DevicePtr<f32>,
}

/// How a layer's attention is launched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionPlan {
    /// How the cache stores keys and values.
    pub format: KvFormat,
    /// Dims of a head.
    pub head_dim: u32,
    /// Blocks a key head.
    pub splits: u32,
    /// Warps of a block.
    pub warps: u32,
    pub(super) shape: AttentionShape,
    clusters: bool,
    parts: u32,
}

/// How much deeper than it reaches a cluster of heads of so many dims is best, and several clusters a key head.
const fn times_reach(head_dim: u32, parts: u32) -> u32 {
    match (head_dim, parts) {
        (0..=64, _) => 5,
        (65..=128, 1) => 2,
        (65..=128, _) => 6,
        _ => 1,
    }
}

impl AttentionPlan {
    /// Splits of a key head at most.
    pub const MAX_SPLITS: u32 = 64;
    /// Splits of a plan that [reaches](Self::reach) only the first tokens: as many as may be one cluster.
    pub const SHALLOW_SPLITS: u32 = super::near::MOST;

    /// A plan for `shape` over a cache of `format` with heads of `head_dim` dims, on a GPU of `sms` multiprocessors: about a
    /// block on each.
    ///
    /// # Errors
    /// A shape that the fast kernels do not take.
    pub fn new(shape: AttentionShape, format: KvFormat, head_dim: u32, sms: u32) -> Result<Self, ShapeError> {
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
        let page = format.page_bytes(kv_heads, head_dim);
        if shape.page_bytes < page || !shape.page_bytes.is_multiple_of(16) {
            return refuse(format!(
                "pages {} bytes apart, at least {page} and a multiple of 16 is needed",
                shape.page_bytes
            ));
        }
        if shape.softcap != 0.0 || shape.least_chunks == 0 {
            return refuse(format!(
                "score cap {} or no least share, neither is supported",
                shape.softcap
            ));
        }
        // Up to 32 are added up in one go: a few more would not pay.
        let splits = match sms / kv_heads {
            33..48 => 32,
            splits => splits.clamp(1, Self::MAX_SPLITS),
        };
        Ok(Self {
            format,
            head_dim,
            splits,
            warps: 8,
            shape,
            clusters: false,
            parts: 1,
        })
    }

    /// The same with another number of blocks a key head and warps a block, for tuning.
    #[must_use]
    pub fn with(mut self, splits: u32, warps: u32) -> Self {
        (self.splits, self.warps) = (splits.clamp(1, Self::MAX_SPLITS), warps.clamp(1, 8));
        self
    }

    /// The deepest position at which a plan with more splits would give work to no more than this one has, and to each
    /// the same: there the two do the same, and this one has fewer blocks to be launched for nothing. Any, where that many
    /// tokens hold the window wherever it begins in a chunk.
    #[must_use]
    pub fn reach(&self) -> u32 {
        let tokens = self.splits * self.shape.least_chunks * CHUNK;
        match self.shape.window {
            0 => tokens,
            window if window + CHUNK > tokens => tokens,
            _ => u32::MAX,
        }
    }

    /// The deepest position for which no plan with more splits is better: clusters go on where each of their splits takes
    /// more, since more splits would meet in memory or where their output is read, which costs more than a few chunks.
    #[must_use]
    pub fn best_to(&self) -> u32 {
        let times = match self.cluster() {
            1 => 1,
            _ => times_reach(self.head_dim, self.parts),
        };
        self.reach().saturating_mul(times)
    }

    /// The same where a GPU has clusters (sm_90) and `clusters` says so: the splits of a key head, if they are eight at most,
    /// meet in shared memory.
    #[must_use]
    pub fn clustered(mut self, clusters: bool) -> Self {
        self.clusters = clusters;
        self
    }

    /// The same in `parts` clusters a key head of `splits` splits each, for an output that is read in parts: at most
    /// [`Parts::MOST`] of at most [`SHALLOW_SPLITS`](Self::SHALLOW_SPLITS).
    #[must_use]
    pub fn in_parts(mut self, parts: u32, splits: u32) -> Self {
        self.parts = parts.clamp(1, Parts::MOST);
        self.splits = self.parts * splits.clamp(1, Self::SHALLOW_SPLITS);
        self.clustered(true)
    }

    /// The same on a GPU of `sms` multiprocessors that has clusters, for an output that is read in parts: in as many clusters of
    /// [`SHALLOW_SPLITS`](Self::SHALLOW_SPLITS) as run at once, if those are two a key head at least. Groups of multiprocessors
    /// are not multiples of a cluster, so some are left over.
    #[must_use]
    pub fn spread(self, sms: u32) -> Self {
        let parts = sms / 8 * 7 / (self.shape.kv_heads * Self::SHALLOW_SPLITS);
        if parts < 2 || self.wide() {
            return self;
        }
        self.in_parts(parts, Self::SHALLOW_SPLITS)
    }

    /// Parts of the output: several where the splits of a key head are as many clusters.
    #[must_use]
    pub fn parts(&self) -> u32 {
        if self.cluster() > 1 { self.parts } else { 1 }
    }

    /// Where the parts lie in the workspace `partial`, if there are several.
    #[must_use]
    pub fn parts_in(&self, partial: DevicePtr<f32>) -> Option<Parts> {
        (self.parts() > 1).then(|| Parts {
            rows: partial,
            marks: partial.add((self.parts * self.out_floats()) as usize).cast(),
            heads: self.shape.heads,
            dim_bits: self.head_dim.trailing_zeros(),
        })
    }

    /// Blocks of a cluster.
    pub(super) fn cluster(&self) -> u32 {
        let splits = self.splits / self.parts;
        if self.clusters && !self.wide() && splits <= super::near::MOST && splits * self.parts == self.splits {
            splits
        } else {
            1
        }
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

    /// How the splits meet.
    fn meet(&self) -> u32 {
        match (self.cluster() > 1, self.parts) {
            (false, _) => FAR,
            (true, 1) => NEAR,
            (true, _) => PARTS,
        }
    }

    pub(super) fn wide(&self) -> bool {
        self.shape.heads / self.shape.kv_heads > 8
    }

    pub(super) fn shared_bytes(&self) -> u32 {
        let bytes = match (self.head_dim, self.wide()) {
            (64, false) => [Room::<64, 1>::bytes(self.warps), Near::<64, 1>::bytes()],
            (128, false) => [Room::<128, 1>::bytes(self.warps), Near::<128, 1>::bytes()],
            (_, false) => [Room::<256, 1>::bytes(self.warps), Near::<256, 1>::bytes()],
            (64, true) => [Room::<64, 2>::bytes(self.warps), Near::<64, 2>::bytes()],
            (_, true) => [Room::<128, 2>::bytes(self.warps), Near::<128, 2>::bytes()],
        };
        bytes[0] + if self.cluster() > 1 { bytes[1] } else { 0 }
    }
}

/// The attention launch of a layer.
#[must_use]
pub fn attention(plan: &AttentionPlan, b: AttentionBuffers) -> PreparedLaunch {
    let config = LaunchConfig::shaped([plan.splits, plan.shape.kv_heads, 1], [32 * plan.warps, 1, 1])
        .shared(plan.shared_bytes())
        .cluster(plan.cluster())
        .pdl(true);
    let (partial, out) = match plan.parts_in(b.partial) {
        Some(parts) => (parts.marks.cast(), parts.rows),
        None => (b.partial, b.out),
    };
    use KvFormat::{Bf16, F16, Q8_0};
    let prepare = match (plan.format, plan.head_dim, plan.wide(), plan.meet()) {
        (F16, 64, false, FAR) => super::attention_64_f16::prepare,
        (F16, 64, false, NEAR) => super::attention_64_f16_cluster::prepare,
        (F16, 64, false, _) => super::attention_64_f16_parts::prepare,
        (F16, 128, false, FAR) => super::attention_128_f16::prepare,
        (F16, 128, false, NEAR) => super::attention_128_f16_cluster::prepare,
        (F16, 128, false, _) => super::attention_128_f16_parts::prepare,
        (F16, _, false, FAR) => super::attention_256_f16::prepare,
        (F16, _, false, NEAR) => super::attention_256_f16_cluster::prepare,
        (F16, _, false, _) => super::attention_256_f16_parts::prepare,
        (F16, 64, true, _) => super::attention_64_f16_wide::prepare,
        (F16, _, true, _) => super::attention_128_f16_wide::prepare,
        (Bf16, 64, false, FAR) => super::attention_64_bf16::prepare,
        (Bf16, 64, false, NEAR) => super::attention_64_bf16_cluster::prepare,
        (Bf16, 64, false, _) => super::attention_64_bf16_parts::prepare,
        (Bf16, 128, false, FAR) => super::attention_128_bf16::prepare,
        (Bf16, 128, false, NEAR) => super::attention_128_bf16_cluster::prepare,
        (Bf16, 128, false, _) => super::attention_128_bf16_parts::prepare,
        (Bf16, _, false, FAR) => super::attention_256_bf16::prepare,
        (Bf16, _, false, NEAR) => super::attention_256_bf16_cluster::prepare,
        (Bf16, _, false, _) => super::attention_256_bf16_parts::prepare,
        (Bf16, 64, true, _) => super::attention_64_bf16_wide::prepare,
        (Bf16, _, true, _) => super::attention_128_bf16_wide::prepare,
        (Q8_0, 64, false, FAR) => super::attention_64_q8_0::prepare,
        (Q8_0, 64, false, NEAR) => super::attention_64_q8_0_cluster::prepare,
        (Q8_0, 64, false, _) => super::attention_64_q8_0_parts::prepare,
        (Q8_0, 128, false, FAR) => super::attention_128_q8_0::prepare,
        (Q8_0, 128, false, NEAR) => super::attention_128_q8_0_cluster::prepare,
        (Q8_0, 128, false, _) => super::attention_128_q8_0_parts::prepare,
        (Q8_0, _, false, FAR) => super::attention_256_q8_0::prepare,
        (Q8_0, _, false, NEAR) => super::attention_256_q8_0_cluster::prepare,
        (Q8_0, _, false, _) => super::attention_256_q8_0_parts::prepare,
        (Q8_0, 64, true, _) => super::attention_64_q8_0_wide::prepare,
        (Q8_0, _, true, _) => super::attention_128_q8_0_wide::prepare,
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
        partial,
        b.counters,
        out,
        plan.shape,
    )
}
