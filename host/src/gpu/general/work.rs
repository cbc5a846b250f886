//! The general path's own buffers.

use cuda_std::DevicePtr;
use sparkinfer_device::layout::activation::Wide;

use super::ranked;
use crate::model::{Attention, Dense, ModelSpec, Moe, Operation};

pub(super) type Floats = DevicePtr<f32>;

/// A vector, or one for each rank, as products read it: plain for matrices as in the file, as records for tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vector {
    pub floats: Floats,
    pub records: DevicePtr<u8>,
}

/// Bytes of the records of `columns` values.
pub(super) fn record_bytes(columns: usize) -> usize {
    columns.div_ceil(256) * Wide::BYTES
}

/// Sizes that the path's own buffers follow from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WorkSizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Experts of a layer at most.
    pub experts: usize,
    /// Chosen experts of a layer at most; 1 where there are none.
    pub ranks: usize,
    /// Inner values of a network, or of all chosen experts, at most.
    pub inner: usize,
    /// Bytes of records of a layer's other vectors than the stream at most.
    records: usize,
}

impl WorkSizes {
    pub(super) fn of(spec: &ModelSpec) -> Self {
        let sizes = Self {
            hidden: spec.embedding_length,
            ranks: 1,
            ..Self::default()
        };
        let parts = spec.layers.iter().flat_map(|layer| &layer.parts);
        parts.fold(sizes, |sizes, part| match &part.operation {
            Operation::Attention(attention) => sizes.with_attention(attention),
            Operation::Dense(dense) => sizes.with_dense(dense),
            Operation::Moe(moe) => sizes.with_moe(moe),
        })
    }

    fn with_attention(mut self, attention: &Attention) -> Self {
        let attended = attention.heads * attention.head_dim;
        self.records = self.records.max(record_bytes(attended));
        self
    }

    fn with_dense(mut self, dense: &Dense) -> Self {
        self.inner = self.inner.max(ranked(1, dense.width));
        self.records = self.records.max(record_bytes(dense.width));
        self
    }

    fn with_moe(mut self, moe: &Moe) -> Self {
        self.experts = self.experts.max(moe.experts);
        self.ranks = self.ranks.max(moe.used);
        self.inner = self.inner.max(ranked(moe.used, moe.width));
        self.records = self.records.max(moe.used * record_bytes(moe.width));
        moe.shared
            .as_ref()
            .map_or(self, |shared| self.with_dense(&shared.network))
    }

    /// Floats of each of [`Work`]'s buffers, in their order.
    fn parts(&self) -> [usize; 12] {
        let (hidden, ranks) = (self.hidden, self.ranks);
        [
            hidden,
            ranked(ranks, hidden),
            hidden,
            hidden,
            self.inner,
            ranks,
            ranks,
            hidden,
            1,
            hidden,
            record_bytes(hidden) / 4,
            self.records / 4,
        ]
    }

    /// Floats of all of them: each begins at a multiple of 64.
    pub(super) fn floats(&self) -> usize {
        self.parts().iter().map(|floats| floats.next_multiple_of(64)).sum()
    }
}

/// The path's own buffers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// What the last norm gave.
    pub normed: Vector,
    /// What the last operation gave, a rank after the other.
    pub results: Floats,
    /// The sum over experts.
    pub mixed: Floats,
    /// What a norm behind an operation gave.
    pub post: Floats,
    /// The ungated half of a network's inner values.
    pub up: Floats,
    /// Weights of the chosen experts.
    pub weights: Floats,
    /// The chosen experts.
    pub ids: DevicePtr<u32>,
    /// What the shared expert gave.
    pub shared: Floats,
    /// The logit of the shared expert's weight.
    pub shared_gate: Floats,
    /// The buffer that the residual stream alternates with.
    pub other: Floats,
    /// Records of what goes into the second product of a part.
    pub records: DevicePtr<u8>,
}

impl Work {
    pub(super) fn new(at: Floats, sizes: &WorkSizes) -> Self {
        let mut end = 0;
        let [
            normed,
            results,
            mixed,
            post,
            up,
            weights,
            ids,
            shared,
            shared_gate,
            other,
            normed_records,
            records,
        ] = sizes.parts().map(|floats| {
            let start = end;
            end += floats.next_multiple_of(64);
            at.add(start)
        });
        Self {
            normed: Vector {
                floats: normed,
                records: normed_records.cast(),
            },
            results,
            mixed,
            post,
            up,
            weights,
            ids: ids.cast(),
            shared,
            shared_gate,
            other,
            records: records.cast(),
        }
    }
}
