//! The decode step of a dense model as a plan: five launches a layer. A result with a norm behind it stays
//! apart until the next operation adds it; behind the last one stands a launch for that.

use cuda_std::DevicePtr;
use cuda_std::launch::PreparedLaunch;
use sparkinfer_device::decode::advance::advance;
use sparkinfer_device::decode::head::HeadShape;
use sparkinfer_device::decode::residual::Residual;
use sparkinfer_device::dense::Matrix;
use sparkinfer_device::dense::apart::Apart;
use sparkinfer_device::dense::plan::{After, AttentionWeights, Common, Entering, Named, NetworkWeights};
use sparkinfer_device::embed::Table;
use sparkinfer_device::shape::ShapeError;

use super::{DenseModel, Placed, PlacedAttention, PlacedNetwork, PlacedPart, Work};
use crate::gpu::backend::{DeviceError, Result};
use crate::gpu::buffers::{BufferSizes, Buffers, CacheRoom, pages_for};
use crate::gpu::decode::{DecodePlan, attention_shape, attention_workspace, page_bytes};
use crate::gpu::plan::Plan;
use crate::gpu::target::Target;
use crate::model::{Attention, ModelSpec};

/// Warps of a block that [`Target::head_blocks`] counts.
const HEAD_WARPS: u32 = 5;
/// Warps of the head that a multiprocessor's registers hold: more blocks would only come when others have ended.
const RESIDENT_WARPS: u32 = 21;

type Shaped<T> = std::result::Result<T, ShapeError>;

/// What a dense plan is made from.
pub struct DenseParts<'a> {
    /// The model as described.
    pub spec: &'a ModelSpec,
    /// Where its weights lie.
    pub model: &'a DenseModel,
    /// Address of the weights' memory.
    pub weights: u64,
    /// The step's buffers and the cache.
    pub buffers: &'a Buffers,
    /// The device, and what was chosen for it.
    pub target: Target,
}

impl DenseParts<'_> {
    /// The plan of a step.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plan(&self) -> Result<DecodePlan> {
        self.shaped().map_err(DeviceError::new)
    }

    fn shaped(&self) -> Shaped<DecodePlan> {
        let (mut plan, common) = (DecodePlan::default(), self.common());
        self.embedding(&mut plan.body)?;
        let first = self
            .model
            .parts
            .first()
            .map_or(self.model.output_norm, |part| part.norm);
        plan.body.push("enter", None, 0, common.beginning(self.at(first))?);
        let mut entering = Entering::Whole(self.buffers.step.stream);
        for (index, part) in self.model.parts.iter().enumerate() {
            let after = self.after(index, part);
            self.part(&mut plan.body, &common, part, entering, after)?;
            entering = self.left(&common, entering, after);
        }
        let last = self.model.output_norm;
        plan.ready.push("enter", None, 0, common.beginning(self.at(last))?);
        self.ending(&mut plan, &common)?;
        Ok(plan)
    }

    pub(super) fn at<T>(&self, offset: u64) -> DevicePtr<T> {
        DevicePtr::from_raw(self.weights + offset)
    }

    pub(super) fn optional<T>(&self, offset: Option<u64>) -> DevicePtr<T> {
        offset.map_or(DevicePtr::null(), |offset| self.at(offset))
    }

    /// A matrix as kernels take it.
    pub(super) fn matrix(&self, placed: &Placed) -> Matrix {
        Matrix {
            tiles: self.at(placed.offset),
            bias: self.optional(placed.bias),
            scale: DevicePtr::null(),
            groups: placed.rows.div_ceil(16),
            kind: placed.kind as u32,
        }
    }

    /// The table of embeddings.
    pub(super) fn table(&self) -> Table {
        Table {
            rows: self.spec.vocab_size as u32,
            columns: self.spec.embedding_length as u32,
            scale: self.spec.embedding.scale,
        }
    }

    fn common(&self) -> Common<'_> {
        let columns = self.spec.embedding_length;
        let y = self.buffers.work;
        Common {
            columns: columns as u32,
            eps: self.spec.norm_eps,
            buffers: &self.buffers.step,
            apart: Residual {
                x: y,
                gained: y,
                squares: y.add(columns.next_multiple_of(64)),
            },
        }
    }

    /// How the part behind one finds the stream: a result that is apart is added where x is not.
    fn left(&self, common: &Common<'_>, entering: Entering, after: After) -> Entering {
        let stream = common.inside(entering);
        if !after.added {
            return Entering::Whole(stream);
        }
        let (first, second) = (
            self.buffers.step.stream.x,
            self.buffers.work.add(apart_floats(common.columns as usize)),
        );
        Entering::Apart(Apart {
            x: stream.x,
            post: common.post(after.post),
            gain: after.next,
            to: if stream.x == first { second } else { first },
        })
    }

    fn embedding(&self, plan: &mut Plan) -> Shaped<()> {
        let (table, b) = (&self.spec.embedding.table.matrix, &self.buffers.step);
        let rows = self.at(self.model.embedding);
        let launch = sparkinfer_device::embed::launch(table.ty, rows, self.table(), b.state.cast(), b.stream.x, 1)?;
        plan.push("embed", None, table.row_bytes() as u64, launch);
        plan.mark_residual(b.stream.x.as_raw(), self.spec.embedding_length);
        Ok(())
    }

    fn part(
        &self,
        plan: &mut Plan,
        common: &Common<'_>,
        part: &PlacedPart,
        entering: Entering,
        after: After,
    ) -> Shaped<()> {
        let launches = match &part.work {
            Work::Attention(attention) => self.attention(common, attention, entering, after)?,
            Work::Network(network) => common.network(entering, &self.network_weights(network), network.width, after)?,
        };
        let x = common.inside(entering).x.as_raw();
        let mut added = matches!(entering, Entering::Apart(_));
        for (name, launch) in launches {
            let post = if added { self.norm_bytes() } else { 0 };
            plan.push(name, Some(part.layer), self.bytes(part, name) + post, launch);
            if added {
                plan.mark_residual(x, self.spec.embedding_length);
            }
            added = false;
        }
        if !after.added {
            plan.mark_residual(x, self.spec.embedding_length);
        }
        Ok(())
    }

    /// What follows part number `index`.
    pub(super) fn after(&self, index: usize, part: &PlacedPart) -> After {
        let next = self.model.parts.get(index + 1);
        After {
            post: self.optional(part.post_norm),
            next: self.at(next.map_or(self.model.output_norm, |part| part.norm)),
            added: part.post_norm.is_some() && next.is_some(),
        }
    }

    fn attention(
        &self,
        common: &Common<'_>,
        part: &PlacedAttention,
        entering: Entering,
        after: After,
    ) -> Shaped<Vec<Named>> {
        let b = self.buffers;
        let shape = attention_shape(self.spec, &part.spec, b.page_bytes);
        let plan = self.target.attention(shape, b.format, part.spec.head_dim as u32)?;
        let (weights, cache) = (self.attention_weights(part), b.cache(part.cache));
        common.attention(entering, &plan, &weights, &cache, after)
    }

    /// Where the weights of an attention lie.
    pub(super) fn attention_weights(&self, part: &PlacedAttention) -> AttentionWeights {
        let [q_norm, k_norm] = part.head_norms.map(|norm| self.optional(norm));
        AttentionWeights {
            qkv: part.qkv.each_ref().map(|placed| self.matrix(placed)),
            q_norm,
            k_norm,
            frequencies: self.at(part.frequencies),
            output: self.matrix(&part.output),
        }
    }

    /// Where the weights of a network lie.
    pub(super) fn network_weights(&self, network: &PlacedNetwork) -> NetworkWeights {
        NetworkWeights {
            gate: self.matrix(&network.gate),
            up: self.matrix(&network.up),
            down: self.matrix(&network.down),
            activation: network.activation,
        }
    }

    fn norm_bytes(&self) -> u64 {
        4 * self.spec.embedding_length as u64
    }

    /// Bytes of weights that the launch of this name in a part must read.
    fn bytes(&self, part: &PlacedPart, name: &str) -> u64 {
        let norm = self.norm_bytes();
        match (&part.work, name) {
            (_, "post_norm") => norm,
            (Work::Attention(attention), "norm_qkv") => norm + attention.qkv.iter().map(|q| q.bytes).sum::<u64>(),
            (Work::Attention(attention), "attention") => {
                4 * (attention.head_norms.iter().flatten().count() * attention.spec.head_dim) as u64
            }
            (Work::Attention(attention), _) => attention.output.bytes,
            (Work::Network(network), "gate_up") => norm + network.gate.bytes + network.up.bytes,
            (Work::Network(network), _) => network.down.bytes,
        }
    }

    fn ending(&self, plan: &mut DecodePlan, common: &Common<'_>) -> Shaped<()> {
        let (b, output) = (self.buffers, &self.model.output);
        let shape = HeadShape {
            rows: self.spec.vocab_size as u32,
            columns: common.columns,
            eps: common.eps,
            softcap: self.spec.logit_softcap.unwrap_or(0.0),
        };
        let blocks = head_blocks(common.columns, &self.target);
        let head = common.head(self.matrix(output), shape, b.logits, b.best, blocks)?;
        let candidates = head.config().grid[0];
        let bytes = output.bytes + 4 * u64::from(common.columns);
        plan.head.push("head", None, bytes, head);
        let next: PreparedLaunch = advance(b.best, candidates, b.step.state, b.ring, b.ring_length)?;
        plan.advance.push("advance", None, 0, next);
        Ok(())
    }
}

/// Blocks of the head's launch: as many as [`Target::head_blocks`] of [`HEAD_WARPS`] warps hold warps, of one for every 256
/// columns, and no more than there is room for at once.
fn head_blocks(columns: u32, target: &Target) -> u32 {
    let warps = columns.div_ceil(256).max(1);
    let room = target.multiprocessors.count * (RESIDENT_WARPS / warps).max(1);
    let blocks = target.head_blocks() * HEAD_WARPS / warps;
    blocks.min(room).clamp(1, target.most_candidates() as u32)
}

/// Floats of a result of `columns` that is apart, with its squares.
fn apart_floats(columns: usize) -> usize {
    columns.next_multiple_of(64) + columns / 16
}

/// The sizes of the buffers that the plan of `model` uses, whatever is chosen for the device: vectors that products read
/// end with whole tiles.
pub fn buffer_sizes(spec: &ModelSpec, model: &DenseModel, room: CacheRoom, target: &Target) -> BufferSizes {
    let format = room.format;
    let most = |f: &dyn Fn(&Attention) -> usize| model.attentions().map(|part| f(&part.spec)).max().unwrap_or(0);
    let columns = spec.embedding_length;
    let width = model
        .networks()
        .map(|network| network.width as usize)
        .max()
        .unwrap_or(0);
    BufferSizes {
        hidden: columns.next_multiple_of(256),
        qkv: most(&|a| (a.heads + 2 * a.kv_heads) * a.head_dim),
        attended: most(&|a| (a.heads * a.head_dim).next_multiple_of(256)),
        experts: 0,
        inner: width.next_multiple_of(256),
        vocab: spec.vocab_size,
        candidates: target.most_candidates(),
        partial: most(&|a| attention_workspace(spec, a, format, target)),
        heads: most(&|a| a.heads),
        work: if model.has_post_norms() {
            apart_floats(columns) + columns
        } else {
            0
        },
        layers: model.attentions().count(),
        format,
        page_bytes: most(&|a| page_bytes(format, a) as usize),
        pages: room.sequences * pages_for(room.context),
    }
}
