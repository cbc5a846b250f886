//! The decode step of the general path as a plan.
//!
//! The residual stream alternates between two buffers: a norm's launch adds what the last operation left to the one and
//! writes the sum to the other, so no launch is spent on additions. So the last norm belongs to the body: behind it the
//! stream is complete.
//!
//! A vector is kept as the products that read it want it: as records where those are of tiles, plain where not, both
//! where both read it.

use std::mem::{swap, take};

use cuda_std::DevicePtr;
use sparkinfer_device::decode::advance::advance;
use sparkinfer_device::decode::attention::{AttentionBuffers, attention, general::general};
use sparkinfer_device::gemv::{self, Extra, rank_stride};
use sparkinfer_device::general::{best, gated, mix, topk};
use sparkinfer_device::layout::Shape;
use sparkinfer_device::mmvq::{Operands, tensor};
use sparkinfer_device::norm::{self, Norm, norm_f32, norm_wide, quantize_wide};
use sparkinfer_device::shape::ShapeError;

use super::super::backend::{DeviceError, Result};
use super::super::buffers::Buffers;
use super::super::decode::{DecodePlan, attention_shape};
use super::super::matrix::Form;
use super::super::plan::Plan;
use super::super::target::Target;
use super::work::{Floats, Vector, Work, WorkSizes, record_bytes};
use super::{GeneralModel, Network, Placed, PlacedAttention, PlacedMoe, PlacedPart, Product, ranked};
use crate::model::{Activation, ModelSpec};

type Shaped<T> = std::result::Result<T, ShapeError>;

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
    /// The device, and what was chosen for it.
    pub target: Target,
}

/// The experts that a product is made for.
#[derive(Clone, Copy)]
struct Ranks {
    count: u32,
    /// Values of each rank's own input; none: they share one.
    own: Option<usize>,
}

impl Ranks {
    /// What lies between one rank's input and the next, in the units of the form's kernel.
    fn stride(self, form: Form) -> u32 {
        let of = |width| match form {
            Form::File => rank_stride(width as u32),
            Form::Tiles => record_bytes(width) as u32,
        };
        self.own.map_or(0, of)
    }
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
        let builder = || Builder {
            parts: self,
            work,
            plan: Plan::default(),
            layer: None,
            x: self.buffers.step.stream.x,
            other: work.other,
            pending: None,
        };
        let plan = || -> Shaped<DecodePlan> {
            Ok(DecodePlan {
                ready: builder().ready()?,
                ..builder().step()?
            })
        };
        plan().map_err(DeviceError::new)
    }

    pub(super) fn at<T>(&self, offset: u64) -> DevicePtr<T> {
        DevicePtr::from_raw(self.weights + offset)
    }

    pub(super) fn optional<T>(&self, offset: Option<u64>) -> DevicePtr<T> {
        offset.map_or(DevicePtr::null(), |offset| self.at(offset))
    }

    fn max_blocks(&self) -> u32 {
        self.target.row_blocks()
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
        self.last_norm()?;
        let body = take(&mut self.plan);
        let candidates = self.head()?;
        let head = take(&mut self.plan);
        let b = self.parts.buffers;
        let launch = advance(b.best, candidates, b.step.state, b.ring, b.ring_length)?;
        self.plan.push("advance", None, 0, launch);
        Ok(DecodePlan {
            body,
            ready: Plan::default(),
            head,
            advance: self.plan,
        })
    }

    /// What a prompt's stream still has to pass.
    fn ready(mut self) -> Shaped<Plan> {
        self.last_norm()?;
        Ok(self.plan)
    }

    fn last_norm(&mut self) -> Shaped<()> {
        let model = self.parts.model;
        self.norm("output_norm", model.output_norm, &[&model.output])
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
        self.norm("norm", part.norm, &part.operation.readers())?;
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

    /// The norm of the stream, with what is pending added to it, as `readers` read it.
    fn norm(&mut self, name: &'static str, gain: u64, readers: &[&Product]) -> Shaped<()> {
        let reads = |form| readers.iter().any(|product| product.form == form);
        let (normed, pending) = (self.work.normed, self.pending.take());
        let (r, sum) = pending.map_or((DevicePtr::null(), DevicePtr::null()), |r| (r, self.other));
        let launch = if reads(Form::File) {
            self.norm_of(self.x, r, gain, sum, normed.floats)?
        } else {
            let (shape, gain) = (self.norm_shape(), self.parts.at(gain));
            norm_wide::prepare(norm::config(shape)?, self.x, r, gain, shape, sum, normed.records)
        };
        self.push_norm(name, launch);
        if pending.is_some() {
            swap(&mut self.x, &mut self.other);
            self.mark_residual();
        }
        if reads(Form::File) && reads(Form::Tiles) {
            self.quantize(normed, self.parts.spec.embedding_length)?;
        }
        Ok(())
    }

    /// Makes records of a vector's floats.
    fn quantize(&mut self, x: Vector, columns: usize) -> Shaped<()> {
        let config = norm::quantize_config(columns)?;
        let launch = quantize_wide::prepare(config, x.floats, columns as u32, x.records);
        self.plan.push("quantize", self.layer, 0, launch);
        Ok(())
    }

    fn norm_shape(&self) -> Norm {
        Norm {
            columns: self.parts.spec.embedding_length as u32,
            epsilon: self.parts.spec.norm_eps,
        }
    }

    fn norm_of(
        &self,
        x: Floats,
        r: Floats,
        gain: u64,
        sum: Floats,
        out: Floats,
    ) -> Shaped<cuda_std::launch::PreparedLaunch> {
        let (shape, gain) = (self.norm_shape(), self.parts.at(gain));
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
        x: Vector,
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
            x: match product.form {
                Form::File => x.floats.cast(),
                Form::Tiles => x.records,
            },
            y,
        };
        let extra = Extra {
            ids: ranks.map_or(DevicePtr::null(), |_| self.work.ids),
            scale: parts.optional(product.scale),
            bias: parts.optional(product.bias),
            expert_bytes: product.form.expert_bytes(matrix) as u64,
            x_stride: ranks.map_or(0, |ranks| ranks.stride(product.form)),
            scale_stride: u32::from(linear.scale.as_ref().is_some_and(|scale| scale.len > 1)),
        };
        let count = ranks.map_or(1, |ranks| ranks.count);
        let launch = match product.form {
            Form::File => gemv::launch_with(matrix.ty, shape, operands, parts.max_blocks(), extra, count)?,
            Form::Tiles => {
                let blocks = parts.target.tile_blocks(tensor::warps(shape.tiles() as u32));
                tensor::launch_with(matrix.ty, shape, operands, blocks, extra, count)?
            }
        };
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
        let pages @ (format, page_bytes) = (parts.buffers.format, parts.buffers.page_bytes);
        let launch = match parts.model.fast(parts.spec, spec, pages, &parts.target) {
            Some(plan) => attention(&plan, buffers),
            None => {
                let shape = attention_shape(parts.spec, spec, page_bytes);
                general(shape, format, spec.head_dim as u32, buffers)?
            }
        };
        let norms = part.head_norms.iter().flatten().count() * spec.head_dim;
        self.plan.push("attention", self.layer, 4 * norms as u64, launch);
        let attended = Vector {
            floats: b.attention,
            records: work.records,
        };
        if part.output.form == Form::Tiles {
            self.quantize(attended, q)?;
        }
        self.product("o", &part.output, attended, work.results, None)?;
        Ok(work.results)
    }

    /// A gated network of the normed stream; of chosen experts where `count` says how many.
    fn network(&mut self, network: &Network, count: Option<u32>, out: Floats) -> Shaped<()> {
        let (work, inner) = (self.work, self.parts.buffers.step.h);
        let ranks = |own| count.map(|count| Ranks { count, own });
        self.product("gate", &network.gate, work.normed, inner, ranks(None))?;
        self.product("up", &network.up, work.normed, work.up, ranks(None))?;
        let bend = match network.activation {
            Activation::Silu => gated::Activation::Silu,
            Activation::GeluTanh => gated::Activation::GeluTanh,
        };
        let (count, width) = (count.unwrap_or(1), network.width);
        let launch = match network.down.form {
            Form::File => {
                let values = ranked(count as usize, width);
                gated::launch(inner, work.up, inner, values, bend, self.parts.max_blocks())?
            }
            Form::Tiles => gated::launch_wide(inner, work.up, work.records, (count, width), bend)?,
        };
        self.plan.push("gated", self.layer, 0, launch);
        let bent = Vector {
            floats: inner,
            records: work.records,
        };
        self.product("down", &network.down, bent, out, ranks(Some(width)))
    }

    fn experts(&mut self, moe: &PlacedMoe) -> Shaped<Floats> {
        let (work, router, used) = (
            self.work,
            self.parts.buffers.step.router_sums.cast(),
            moe.spec.used as u32,
        );
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
        let blocks = parts.target.head_blocks();
        let softcap = spec.logit_softcap.unwrap_or(0.0);
        let launch = best::launch(b.logits, b.best, spec.vocab_size, softcap, blocks)?;
        self.plan.push("best", None, 0, launch);
        Ok(blocks)
    }
}
