//! The decode step of the general path as a plan.
//!
//! The residual stream alternates between two buffers: a norm's launch adds what the last operation left to the one and
//! writes the sum to the other, so no launch is spent on additions. So the last norm belongs to the body: behind it the
//! stream is complete.

use std::mem::{swap, take};

use cuda_std::DevicePtr;
use sparkinfer_device::decode::advance::advance;
use sparkinfer_device::decode::attention::{AttentionBuffers, attention, general::general};
use sparkinfer_device::gemv::{self, Extra, rank_stride};
use sparkinfer_device::general::{best, gated, mix, topk};
use sparkinfer_device::layout::Shape;
use sparkinfer_device::mmvq::Operands;
use sparkinfer_device::norm::{self, Norm, norm_f32};
use sparkinfer_device::shape::ShapeError;

use super::super::backend::{DeviceError, Result};
use super::super::buffers::Buffers;
use super::super::decode::{DecodePlan, attention_shape};
use super::super::matrix::Form;
use super::super::plan::Plan;
use super::{
    BEST_BLOCKS_PER_SM, BLOCKS_PER_SM, GeneralModel, Network, Placed, PlacedAttention, PlacedMoe, PlacedPart, Product,
    ranked,
};
use crate::model::{Activation, Dense, ModelSpec, Moe, Operation};

type Shaped<T> = std::result::Result<T, ShapeError>;
type Floats = DevicePtr<f32>;

/// What a general plan is made from.
pub struct GeneralParts<'a> {
    /// The model as described.
    pub spec: &'a ModelSpec,
    /// Where its weights lie.
    pub model: &'a GeneralModel,
    /// Address of the weights' memory.
    pub weights: u64,
    /// The step's buffers and the cache.
    pub buffers: &'a Buffers,
    /// Multiprocessors of the device.
    pub multiprocessors: u32,
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
            Operation::Attention(_) => sizes,
            Operation::Dense(dense) => sizes.with_dense(dense),
            Operation::Moe(moe) => sizes.with_moe(moe),
        })
    }

    fn with_dense(mut self, dense: &Dense) -> Self {
        self.inner = self.inner.max(ranked(1, dense.width));
        self
    }

    fn with_moe(mut self, moe: &Moe) -> Self {
        self.experts = self.experts.max(moe.experts);
        self.ranks = self.ranks.max(moe.used);
        self.inner = self.inner.max(ranked(moe.used, moe.width));
        moe.shared
            .as_ref()
            .map_or(self, |shared| self.with_dense(&shared.network))
    }

    /// Floats of each of [`Work`]'s buffers, in their order.
    fn parts(&self) -> [usize; 10] {
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
        ]
    }

    /// Floats of all of them: each begins at a multiple of 64.
    pub(super) fn floats(&self) -> usize {
        self.parts().iter().map(|floats| floats.next_multiple_of(64)).sum()
    }
}

/// The path's own buffers.
#[derive(Debug, Clone, Copy)]
struct Work {
    /// What the last norm gave.
    normed: Floats,
    /// What the last operation gave, a rank after the other.
    results: Floats,
    /// The sum over experts.
    mixed: Floats,
    /// What a norm behind an operation gave.
    post: Floats,
    /// The ungated half of a network's inner values.
    up: Floats,
    /// Weights of the chosen experts.
    weights: Floats,
    /// The chosen experts.
    ids: DevicePtr<u32>,
    /// What the shared expert gave.
    shared: Floats,
    /// The logit of the shared expert's weight.
    shared_gate: Floats,
    /// The buffer that the residual stream alternates with.
    other: Floats,
}

impl Work {
    fn new(at: Floats, sizes: &WorkSizes) -> Self {
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
        ] = sizes.parts().map(|floats| {
            let start = end;
            end += floats.next_multiple_of(64);
            at.add(start)
        });
        Self {
            normed,
            results,
            mixed,
            post,
            up,
            weights,
            ids: ids.cast(),
            shared,
            shared_gate,
            other,
        }
    }
}

/// The experts that a product is made for.
#[derive(Clone, Copy)]
struct Ranks {
    count: u32,
    /// Floats from one rank's input to the next; 0: they share it.
    x_stride: u32,
}

/// A plan being made.
struct Builder<'a> {
    parts: &'a GeneralParts<'a>,
    work: Work,
    plan: Plan,
    layer: Option<usize>,
    /// The residual stream, without what is pending.
    x: Floats,
    /// The buffer of the stream that is free.
    other: Floats,
    /// What is still to be added to the stream.
    pending: Option<Floats>,
}

impl GeneralParts<'_> {
    /// The plan of a step.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plan(&self) -> Result<DecodePlan> {
        if let Some(bias) = &self.spec.embedding.table.bias {
            return Err(DeviceError(format!(
                "tensor {}: an embedding takes no bias",
                bias.tensor
            )));
        }
        let work = Work::new(self.buffers.work, &WorkSizes::of(self.spec));
        let builder = Builder {
            parts: self,
            work,
            plan: Plan::default(),
            layer: None,
            x: self.buffers.step.x,
            other: work.other,
            pending: None,
        };
        builder.step().map_err(DeviceError::new)
    }

    fn at<T>(&self, offset: u64) -> DevicePtr<T> {
        DevicePtr::from_raw(self.weights + offset)
    }

    fn optional<T>(&self, offset: Option<u64>) -> DevicePtr<T> {
        offset.map_or(DevicePtr::null(), |offset| self.at(offset))
    }

    fn max_blocks(&self) -> u32 {
        BLOCKS_PER_SM * self.multiprocessors
    }
}

impl Builder<'_> {
    fn step(mut self) -> Shaped<DecodePlan> {
        self.embedding()?;
        for (layer, parts) in self.parts.model.layers.iter().enumerate() {
            self.layer = Some(layer);
            parts.iter().try_for_each(|part| self.part(part))?;
        }
        self.layer = None;
        self.norm("output_norm", self.parts.model.output_norm)?;
        let body = take(&mut self.plan);
        let candidates = self.head()?;
        let head = take(&mut self.plan);
        let b = self.parts.buffers;
        let launch = advance(b.best, candidates, b.step.state, b.ring, b.ring_length)?;
        self.plan.push("advance", None, 0, launch);
        Ok(DecodePlan {
            body,
            head,
            advance: self.plan,
        })
    }

    fn embedding(&mut self) -> Shaped<()> {
        let (spec, table) = (self.parts.spec, &self.parts.model.embedding);
        let matrix = &table.linear.matrix;
        let shape = sparkinfer_device::embed::Table {
            rows: spec.vocab_size as u32,
            columns: spec.embedding_length as u32,
            scale: spec.embedding.scale,
        };
        let (rows, token) = (self.parts.at(table.offset), self.parts.buffers.step.state.cast());
        let launch = sparkinfer_device::embed::launch(matrix.ty, rows, shape, token, self.x, 1)?;
        self.plan.push("embed", None, matrix.row_bytes() as u64, launch);
        if let Some(scale) = table.scale {
            let scaled = mix::Mix {
                weights: self.parts.at(scale),
                ..self.sum_of(self.x, 1)
            };
            self.plan.push("embed_scale", None, 4, mix::launch(scaled, self.other)?);
            swap(&mut self.x, &mut self.other);
        }
        self.mark_residual();
        Ok(())
    }

    /// The launch pushed last completes the stream.
    fn mark_residual(&mut self) {
        let (address, length) = (self.x.as_raw(), self.parts.spec.embedding_length);
        self.plan.mark_residual(address, length);
    }

    fn part(&mut self, part: &PlacedPart) -> Shaped<()> {
        self.norm("norm", part.norm)?;
        let result = match &part.operation {
            Placed::Attention(attention) => self.attention(attention)?,
            Placed::Dense(network) => {
                self.network(network, None, self.work.results)?;
                self.work.results
            }
            Placed::Moe(moe) => self.experts(moe)?,
        };
        self.pending = Some(result);
        if let Some(gain) = part.post_norm {
            let launch = self.norm_of(result, DevicePtr::null(), gain, DevicePtr::null(), self.work.post)?;
            self.push_norm("post_norm", launch);
            self.pending = Some(self.work.post);
        }
        Ok(())
    }

    /// The norm of the stream, with what is pending added to it.
    fn norm(&mut self, name: &'static str, gain: u64) -> Shaped<()> {
        let pending = self.pending.take();
        let (r, sum) = pending.map_or((DevicePtr::null(), DevicePtr::null()), |r| (r, self.other));
        let launch = self.norm_of(self.x, r, gain, sum, self.work.normed)?;
        self.push_norm(name, launch);
        if pending.is_some() {
            swap(&mut self.x, &mut self.other);
            self.mark_residual();
        }
        Ok(())
    }

    fn norm_of(
        &self,
        x: Floats,
        r: Floats,
        gain: u64,
        sum: Floats,
        out: Floats,
    ) -> Shaped<cuda_std::launch::PreparedLaunch> {
        let shape = Norm {
            columns: self.parts.spec.embedding_length as u32,
            epsilon: self.parts.spec.norm_eps,
        };
        let gain = self.parts.at(gain);
        Ok(norm_f32::prepare(
            norm::config(shape)?,
            x,
            r,
            gain,
            shape,
            sum,
            out.cast(),
        ))
    }

    fn push_norm(&mut self, name: &'static str, launch: cuda_std::launch::PreparedLaunch) {
        let bytes = 4 * self.parts.spec.embedding_length as u64;
        self.plan.push(name, self.layer, bytes, launch);
    }

    /// `y = scale·W x + bias`, for chosen experts where `ranks` says so.
    fn product(
        &mut self,
        name: &'static str,
        product: &Product,
        x: Floats,
        y: Floats,
        ranks: Option<Ranks>,
    ) -> Shaped<()> {
        let (linear, parts) = (&product.linear, self.parts);
        let matrix = &linear.matrix;
        let shape = Shape {
            rows: matrix.rows,
            columns: matrix.cols,
        };
        let operands = Operands {
            weights: parts.at(product.offset),
            x: x.cast(),
            y,
        };
        let extra = Extra {
            ids: ranks.map_or(DevicePtr::null(), |_| self.work.ids),
            scale: parts.optional(product.scale),
            bias: parts.optional(product.bias),
            expert_bytes: Form::File.expert_bytes(matrix) as u64,
            x_stride: ranks.map_or(0, |ranks| ranks.x_stride),
            scale_stride: u32::from(linear.scale.as_ref().is_some_and(|scale| scale.len > 1)),
        };
        let count = ranks.map_or(1, |ranks| ranks.count);
        let launch = gemv::launch_with(matrix.ty, shape, operands, parts.max_blocks(), extra, count)?;
        self.plan
            .push(name, self.layer, u64::from(count) * linear.bytes(), launch);
        Ok(())
    }

    fn attention(&mut self, part: &PlacedAttention) -> Shaped<Floats> {
        let (parts, work, spec) = (self.parts, self.work, &part.spec);
        let (b, cache) = (&parts.buffers.step, parts.buffers.cache(part.cache));
        let (q, k) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        self.product("q", &part.q, work.normed, b.qkv, None)?;
        self.product("k", &part.k, work.normed, b.qkv.add(q), None)?;
        self.product("v", &part.v, work.normed, b.qkv.add(q + k), None)?;
        let buffers = AttentionBuffers {
            qkv: b.qkv,
            q_norm: parts.optional(part.head_norms[0]),
            k_norm: parts.optional(part.head_norms[1]),
            frequencies: parts.at(part.frequencies),
            state: b.state,
            table: b.table,
            keys: cache.keys,
            values: cache.values,
            partial: b.partial,
            counters: b.counters,
            out: b.attention,
        };
        let page_stride = parts.buffers.page_stride;
        let launch = match parts.model.fast(parts.spec, spec, page_stride, parts.multiprocessors) {
            Some(plan) => attention(&plan, buffers),
            None => {
                let shape = attention_shape(parts.spec, spec, page_stride);
                general(shape, spec.head_dim as u32, buffers)?
            }
        };
        let norms = part.head_norms.iter().flatten().count() * spec.head_dim;
        self.plan.push("attention", self.layer, 4 * norms as u64, launch);
        self.product("o", &part.output, b.attention, work.results, None)?;
        Ok(work.results)
    }

    /// A gated network of the normed stream; of chosen experts where `count` says how many.
    fn network(&mut self, network: &Network, count: Option<u32>, out: Floats) -> Shaped<()> {
        let (work, inner) = (self.work, self.parts.buffers.step.h);
        let stride = rank_stride(network.width as u32);
        let ranks = |x_stride| count.map(|count| Ranks { count, x_stride });
        self.product("gate", &network.gate, work.normed, inner, ranks(0))?;
        self.product("up", &network.up, work.normed, work.up, ranks(0))?;
        let values = ranked(count.unwrap_or(1) as usize, network.width);
        let bend = match network.activation {
            Activation::Silu => gated::Activation::Silu,
            Activation::GeluTanh => gated::Activation::GeluTanh,
        };
        let launch = gated::launch(inner, work.up, inner, values, bend, self.parts.max_blocks())?;
        self.plan.push("gated", self.layer, 0, launch);
        self.product("down", &network.down, inner, out, ranks(stride))
    }

    fn experts(&mut self, moe: &PlacedMoe) -> Shaped<Floats> {
        let (work, router, used) = (self.work, self.parts.buffers.step.router_logits, moe.spec.used as u32);
        self.product("router", &moe.router, work.normed, router, None)?;
        let choice = topk::Choice {
            experts: moe.spec.experts as u32,
            used,
            renormalise: u32::from(moe.spec.renormalise),
            scale: moe.spec.weight_scale,
        };
        let launch = topk::launch(router, work.ids, work.weights, choice)?;
        self.plan.push("topk", self.layer, 0, launch);
        self.network(&moe.experts, Some(used), work.results)?;
        let mut sum = mix::Mix {
            weights: work.weights,
            ..self.sum_of(work.results, used)
        };
        if let Some((network, gate)) = &moe.shared {
            self.network(network, None, work.shared)?;
            sum.shared = work.shared;
            if let Some(gate) = gate {
                self.product("shared_gate", gate, work.normed, work.shared_gate, None)?;
                sum.shared_gate = work.shared_gate;
            }
        }
        self.plan.push("mix", self.layer, 0, mix::launch(sum, work.mixed)?);
        Ok(work.mixed)
    }

    /// The plain sum of `ranks` vectors of the stream's width.
    fn sum_of(&self, y: Floats, ranks: u32) -> mix::Mix {
        mix::Mix {
            y,
            weights: DevicePtr::null(),
            shared: DevicePtr::null(),
            shared_gate: DevicePtr::null(),
            ranks,
            columns: self.parts.spec.embedding_length as u32,
        }
    }

    /// From the normed stream to logits and candidates; returns the number of these.
    fn head(&mut self) -> Shaped<u32> {
        let (parts, spec, b) = (self.parts, self.parts.spec, self.parts.buffers);
        self.product("head", &parts.model.output, self.work.normed, b.logits, None)?;
        let blocks = BEST_BLOCKS_PER_SM * parts.multiprocessors;
        let softcap = spec.logit_softcap.unwrap_or(0.0);
        let launch = best::launch(b.logits, b.best, spec.vocab_size, softcap, blocks)?;
        self.plan.push("best", None, 0, launch);
        Ok(blocks)
    }
}
