//! The decode step of a fused model as a plan: six launches a layer, one for the embedding, two for the head.

use cuda_std::DevicePtr;
use sparkinfer_device::decode::advance::advance;
use sparkinfer_device::decode::ahead::Ahead;
use sparkinfer_device::decode::attention::{AttentionBuffers, AttentionPlan, AttentionShape, attention};
use sparkinfer_device::decode::down::down_residual;
use sparkinfer_device::decode::gateup::{ExpertShape, GateUp, topk_gateup};
use sparkinfer_device::decode::head::{HeadShape, head_argmax};
use sparkinfer_device::decode::norm_qkv::{QkvShape, norm_qkv};
use sparkinfer_device::decode::o_proj::o_proj_residual;
use sparkinfer_device::decode::rope::Pairing;
use sparkinfer_device::decode::router::norm_router;
use sparkinfer_device::decode::rows::{Matrix, TileKind};
use sparkinfer_device::shape::ShapeError;

use super::backend::{DeviceError, Result};
use super::buffers::{BufferSizes, StepBuffers, pages_for};
use super::layers::{FusedAttention, FusedExperts, FusedModel, Tiled};
use super::matrix::Form;
use super::plan::Plan;
use crate::model::{Attention, ModelSpec, Moe, RopeLayout};

/// Blocks of the head launch for each multiprocessor: enough that their loads overlap.
const HEAD_BLOCKS_PER_SM: u32 = 4;
/// Chunks of 32 tokens that a split of the cache takes before another split gets work.
const LEAST_CHUNKS: u32 = 4;

/// What a decode plan is made from.
pub struct DecodeParts<'a> {
    /// The model as described.
    pub spec: &'a ModelSpec,
    /// Where its weights lie.
    pub model: &'a FusedModel,
    /// Address of the weights' memory.
    pub weights: u64,
    /// The step's buffers and the cache.
    pub buffers: &'a StepBuffers,
    /// Multiprocessors of the device.
    pub multiprocessors: u32,
}

/// The launches of a step, in three parts that follow one another.
#[derive(Debug, Clone, Default)]
pub struct DecodePlan {
    /// From the token to the residual stream behind the last layer.
    pub body: Plan,
    /// From there to logits and each block's best token.
    pub head: Plan,
    /// The best token becomes the next step's.
    pub advance: Plan,
}

impl DecodeParts<'_> {
    /// The plan of a step.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plan(&self) -> Result<DecodePlan> {
        let mut plan = DecodePlan::default();
        self.embedding(&mut plan.body)?;
        for (layer, (attention, experts)) in self.model.layers.iter().enumerate() {
            self.attention(&mut plan.body, layer, attention)
                .map_err(DeviceError::new)?;
            self.experts(&mut plan.body, layer, experts).map_err(DeviceError::new)?;
        }
        self.head(&mut plan).map_err(DeviceError::new)?;
        Ok(plan)
    }

    /// The address of a piece of the weights.
    pub(super) fn at<T>(&self, offset: u64) -> DevicePtr<T> {
        DevicePtr::from_raw(self.weights + offset)
    }

    /// The same, null where there is no piece.
    pub(super) fn optional<T>(&self, offset: Option<u64>) -> DevicePtr<T> {
        offset.map_or(DevicePtr::null(), |offset| self.at(offset))
    }

    /// A tiled matrix as kernels take it.
    pub(super) fn matrix(&self, tiled: &Tiled) -> Matrix {
        let groups = tiled.rows.div_ceil(16);
        Matrix {
            tiles: self.at(tiled.offset),
            groups,
            kind: tile_kind(tiled.form) as u32,
        }
    }

    fn embedding(&self, plan: &mut Plan) -> Result<()> {
        let (table, spec, b) = (&self.spec.embedding.table.matrix, self.spec, self.buffers);
        let shape = sparkinfer_device::embed::Table {
            rows: spec.vocab_size as u32,
            columns: spec.embedding_length as u32,
            scale: spec.embedding.scale,
        };
        let rows = self.at(self.model.embedding);
        let launch = sparkinfer_device::embed::launch(table.ty, rows, shape, b.state.cast(), b.x, 1);
        plan.push(
            "embed",
            None,
            table.row_bytes() as u64,
            launch.map_err(DeviceError::new)?,
        );
        plan.mark_residual(b.x.as_raw(), spec.embedding_length);
        Ok(())
    }

    fn attention(&self, plan: &mut Plan, layer: usize, part: &FusedAttention) -> std::result::Result<(), ShapeError> {
        let (b, spec) = (self.buffers, &part.spec);
        let columns = self.spec.embedding_length as u32;
        let matrices = part.qkv.each_ref().map(|tiled| self.matrix(tiled));
        let shape = QkvShape {
            matrices,
            columns,
            eps: self.spec.norm_eps,
            ahead: Ahead::NONE,
        };
        let bytes = part.qkv.iter().map(|tiled| tiled.expert_bytes).sum();
        let qkv = norm_qkv(b.x, self.at(part.norm), DevicePtr::null(), b.qkv, shape)?;
        plan.push("norm_qkv", Some(layer), bytes, qkv);

        let attend = AttentionPlan::new(
            attention_shape(self.spec, spec, b.page_stride),
            spec.head_dim as u32,
            self.multiprocessors,
        )?;
        plan.push(
            "attention",
            Some(layer),
            0,
            attention(&attend, self.attention_buffers(layer, part)),
        );

        let width = (spec.heads * spec.head_dim) as u32;
        let output = self.matrix(&part.output);
        let project = o_proj_residual(b.attended, b.x, b.x_mid, output, width, Ahead::NONE)?;
        plan.push("o_proj", Some(layer), part.output.expert_bytes, project);
        plan.mark_residual(b.x_mid.as_raw(), self.spec.embedding_length);
        Ok(())
    }

    fn attention_buffers(&self, layer: usize, part: &FusedAttention) -> AttentionBuffers {
        let b = self.buffers;
        AttentionBuffers {
            qkv: b.qkv,
            q_norm: self.optional(part.head_norms[0]),
            k_norm: self.optional(part.head_norms[1]),
            frequencies: self.at(part.frequencies),
            state: b.state,
            table: b.page_table,
            keys: b.keys(layer),
            values: b.values(layer),
            partial: b.partial,
            counters: b.counters,
            out: b.attended,
        }
    }

    fn experts(&self, plan: &mut Plan, layer: usize, part: &FusedExperts) -> std::result::Result<(), ShapeError> {
        let (b, moe) = (self.buffers, &part.spec);
        let columns = self.spec.embedding_length as u32;
        let (experts, eps) = (moe.experts as u32, self.spec.norm_eps);
        let (norm, router) = (self.at(part.norm), self.at(part.router));
        let route = norm_router(router, b.x_mid, norm, b.router, experts, columns, eps, Ahead::NONE)?;
        plan.push("router", Some(layer), moe.router.matrix.bytes(), route);

        let shape = ExpertShape {
            experts,
            used: moe.used as u32,
            columns,
            ff: moe.width as u32,
            eps,
            reserved: 0,
        };
        let weights = GateUp {
            gate: self.matrix(&part.gate),
            up: self.matrix(&part.up),
            down: Ahead::NONE,
        };
        let used = moe.used as u64;
        let gate_up = topk_gateup(b.x_mid, norm, b.router, b.hidden, weights, shape)?;
        plan.push(
            "gate_up",
            Some(layer),
            used * (part.gate.expert_bytes + part.up.expert_bytes),
            gate_up,
        );

        let down = down_residual(b.hidden, b.router, b.x_mid, b.x, self.matrix(&part.down), shape)?;
        plan.push("down", Some(layer), used * part.down.expert_bytes, down);
        plan.mark_residual(b.x.as_raw(), self.spec.embedding_length);
        Ok(())
    }

    fn head(&self, plan: &mut DecodePlan) -> std::result::Result<(), ShapeError> {
        let (b, output) = (self.buffers, &self.model.output);
        let shape = HeadShape {
            rows: self.spec.vocab_size as u32,
            columns: self.spec.embedding_length as u32,
            eps: self.spec.norm_eps,
            softcap: self.spec.logit_softcap.unwrap_or(0.0),
        };
        let blocks = self.head_blocks();
        let matrix = self.matrix(output);
        let head = head_argmax(
            b.x,
            self.at(self.model.output_norm),
            b.logits,
            b.best,
            matrix,
            shape,
            blocks,
        )?;
        plan.head.push("head", None, output.expert_bytes, head);
        plan.advance.push(
            "advance",
            None,
            0,
            advance(b.best, blocks, b.state, b.ring, b.ring_length)?,
        );
        Ok(())
    }

    fn head_blocks(&self) -> u32 {
        (HEAD_BLOCKS_PER_SM * self.multiprocessors).clamp(1, self.model.output.rows.div_ceil(16))
    }
}

/// The sizes of the buffers that the plan of `model` uses, with room for `context` tokens.
///
/// # Errors
/// A shape that the attention kernels do not take.
pub fn buffer_sizes(spec: &ModelSpec, model: &FusedModel, context: usize, multiprocessors: u32) -> Result<BufferSizes> {
    let most = |f: &dyn Fn(&Attention, &Moe) -> usize| {
        let sizes = model
            .layers
            .iter()
            .map(|(attention, experts)| f(&attention.spec, &experts.spec));
        sizes.max().unwrap_or(0)
    };
    Ok(BufferSizes {
        hidden: spec.embedding_length,
        qkv: most(&|a, _| (a.heads + 2 * a.kv_heads) * a.head_dim),
        attended: most(&|a, _| a.heads * a.head_dim),
        experts: most(&|_, moe| moe.experts),
        inner: most(&|_, moe| moe.used * moe.width),
        vocab: spec.vocab_size,
        candidates: most_candidates(multiprocessors),
        partial: attention_workspace(spec, model, multiprocessors)?,
        kv_heads: most(&|a, _| a.kv_heads),
        work: 0,
        layers: model.layers.len(),
        page_stride: most(&|a, _| page_stride(a) as usize),
        pages: pages_for(context),
    })
}

/// Candidates that the head leaves for [`advance`], at most.
fn most_candidates(multiprocessors: u32) -> usize {
    (HEAD_BLOCKS_PER_SM * multiprocessors) as usize
}

/// Floats of workspace that the attention of `model` needs.
fn attention_workspace(spec: &ModelSpec, model: &FusedModel, multiprocessors: u32) -> Result<usize> {
    let mut plans = model.layers.iter().map(|(part, _)| {
        let shape = attention_shape(spec, &part.spec, page_stride(&part.spec));
        AttentionPlan::new(shape, part.spec.head_dim as u32, multiprocessors).map(|plan| plan.workspace_floats())
    });
    plans
        .try_fold(0, |most, floats| floats.map(|floats| most.max(floats)))
        .map_err(DeviceError::new)
}

/// Elements of one page of a part's keys, and of its values.
pub(super) fn page_stride(attention: &Attention) -> u32 {
    sparkinfer_device::decode::kv::page_elements(attention.kv_heads as u32, attention.head_dim as u32)
}

/// The attention kernels' constants for a part whose cache has pages `page_stride` elements apart.
pub(super) fn attention_shape(spec: &ModelSpec, attention: &Attention, page_stride: u32) -> AttentionShape {
    AttentionShape {
        heads: attention.heads as u32,
        kv_heads: attention.kv_heads as u32,
        rotated: attention.rope.dims as u32,
        pairing: match attention.rope.layout {
            RopeLayout::Halves => Pairing::Halves as u32,
            RopeLayout::Interleaved => Pairing::Neighbours as u32,
        },
        window: attention.window.unwrap_or(0) as u32,
        page_stride,
        least_chunks: LEAST_CHUNKS,
        eps: spec.norm_eps,
        scale: attention.scale,
        mscale: attention.rope.magnitude(),
        softcap: attention.softcap.unwrap_or(0.0),
    }
}

fn tile_kind(form: Form) -> TileKind {
    match form {
        Form::Q6KTile => TileKind::Q6K,
        _ => TileKind::Q4K,
    }
}
