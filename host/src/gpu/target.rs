//! What launches are shaped for: a device's size, and the choices made for it.

use sparkinfer_device::decode::attention::{AttentionPlan, AttentionShape};
use sparkinfer_device::decode::kv::KvFormat;
use sparkinfer_device::decode::plan::Multiprocessors;
use sparkinfer_device::shape::ShapeError;

use crate::tuning::Tuning;

/// Blocks of a head launch, for each multiprocessor, that there is memory for.
const MOST_HEAD_BLOCKS: u32 = 16;

/// Positions that a plan is for, as far as attention's launch depends on them. Up to its reach each gives what the others give, but for the rounding of sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The first ones, which one split of the cache takes: no other is launched.
    OneSplit,
    /// Those that [`AttentionPlan::SHALLOW_SPLITS`] splits take: as many blocks are launched, as a cluster where there are such.
    FewSplits,
    /// Those for which several clusters of them are best, where what reads attention's output merges their parts.
    SeveralClusters,
    /// Any.
    Any,
}

/// A device as plans see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Its multiprocessors: how many blocks make a full wave, and what shared memory they have.
    pub multiprocessors: Multiprocessors,
    /// The choices.
    pub tuning: Tuning,
    /// How deep the positions are that plans are for.
    pub depth: Depth,
    /// Kernels may be launched in clusters.
    pub clusters: bool,
    /// What reads attention's output takes it in parts.
    pub parts: bool,
}

impl Target {
    /// How a part's attention is launched.
    ///
    /// # Errors
    /// A shape that the fast kernels do not take.
    pub fn attention(
        &self,
        shape: AttentionShape,
        format: KvFormat,
        head_dim: u32,
    ) -> Result<AttentionPlan, ShapeError> {
        let Tuning {
            attention_splits,
            attention_warps,
            attention_least_chunks,
            ..
        } = self.tuning;
        let shape = AttentionShape {
            least_chunks: attention_least_chunks,
            ..shape
        };
        let plan = AttentionPlan::new(shape, format, head_dim, self.multiprocessors.count)?;
        let splits = if attention_splits == 0 {
            plan.splits
        } else {
            attention_splits
        };
        if self.depth == Depth::OneSplit {
            return Ok(plan.with(1, attention_warps));
        }
        let few = plan.with(splits.min(AttentionPlan::SHALLOW_SPLITS), attention_warps);
        // A short window gives no more splits work, however deep it is.
        if self.depth == Depth::FewSplits || few.reach() == u32::MAX {
            return Ok(few.clustered(self.clusters));
        }
        let plan = plan.with(splits, attention_warps);
        if self.depth == Depth::SeveralClusters && self.parts && self.clusters && attention_splits == 0 {
            return Ok(plan.spread(self.multiprocessors.count));
        }
        Ok(plan)
    }

    /// Floats of workspace of a part's attention, whatever the choices; 0 where the fast kernels do not take it.
    pub fn attention_workspace(&self, shape: AttentionShape, format: KvFormat, head_dim: u32) -> usize {
        let plan = self.attention(shape, format, head_dim);
        plan.map_or(0, |plan| {
            plan.with(AttentionPlan::MAX_SPLITS, plan.warps).workspace_floats()
        })
    }

    /// Where launches are to lie evenly: beside attention in one split.
    pub fn even(&self) -> Option<Multiprocessors> {
        (self.depth == Depth::OneSplit).then_some(self.multiprocessors)
    }

    /// Blocks that make logits.
    pub fn head_blocks(&self) -> u32 {
        self.tuning.head_blocks.clamp(1, MOST_HEAD_BLOCKS) * self.multiprocessors.count
    }

    /// Candidates that such blocks leave at most, whatever the choices.
    pub fn most_candidates(&self) -> usize {
        (MOST_HEAD_BLOCKS * self.multiprocessors.count) as usize
    }

    /// Blocks of a large launch of the general path at most.
    pub fn row_blocks(&self) -> u32 {
        self.tuning.row_blocks * self.multiprocessors.count
    }

    /// Blocks of `warps` warps that multiply tiles at most.
    pub fn tile_blocks(&self, warps: u32) -> u32 {
        self.multiprocessors.count * self.tuning.tile_warps / warps.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkinfer_device::decode::rope::Pairing;

    /// Splits and parts of a deep step of `kv_heads` key heads of 128 dims on `multiprocessors`.
    fn deep(multiprocessors: u32, clusters: bool, kv_heads: u32, window: u32) -> (u32, u32) {
        let target = Target {
            multiprocessors: Multiprocessors {
                count: multiprocessors,
                shared_bytes: 0,
            },
            tuning: Tuning::default(),
            depth: Depth::SeveralClusters,
            clusters,
            parts: true,
        };
        let format = KvFormat::F16;
        let shape = AttentionShape {
            heads: 8 * kv_heads,
            kv_heads,
            rotated: 128,
            pairing: Pairing::Halves as u32,
            window,
            page_bytes: format.page_bytes(kv_heads, 128),
            least_chunks: 1,
            eps: 1e-6,
            scale: 1.0,
            mscale: 1.0,
            softcap: 0.0,
        };
        let plan = target.attention(shape, format, 128).unwrap();
        (plan.splits, plan.parts())
    }

    #[test]
    fn outputs_are_in_parts_where_several_clusters_a_key_head_run_at_once() {
        assert_eq!(deep(132, true, 4, 0), (24, 3));
        assert_eq!(deep(132, true, 2, 0), (32, 4));
        assert_eq!(deep(132, false, 4, 0), (32, 1));
        assert_eq!(deep(132, true, 8, 0), (16, 1));
        assert_eq!(deep(48, true, 4, 0), (12, 1));
        assert_eq!(deep(132, true, 4, 128), (8, 1));
    }
}
