//! The decode step of a fused model as a plan: five launches a layer, one for the embedding, two for the head.

use cuda_std::DevicePtr;
use sparkinfer_device::decode::attention::{AttentionPlan, AttentionShape};
use sparkinfer_device::decode::gateup::ExpertShape;
use sparkinfer_device::decode::head::HeadShape;
use sparkinfer_device::decode::kv::KvFormat;
use sparkinfer_device::decode::plan::{Ending, LayerShape, LayerWeights, beginning, ending, layer};
use sparkinfer_device::decode::rope::Pairing;
use sparkinfer_device::decode::rows::{Matrix, TileKind};
use sparkinfer_device::embed::Table;
use sparkinfer_device::shape::ShapeError;
use sparkinfer_gguf::TensorType;

use super::backend::{DeviceError, Result};
use super::buffers::{BufferSizes, Buffers, CacheRoom, pages_for};
use super::layers::{FusedAttention, FusedExperts, FusedModel, Tiled};
use super::plan::Plan;
use super::target::{Depth, Target};
use crate::model::{Attention, ModelSpec, Moe, RopeLayout};

/// Chunks of 16 tokens that a split of the cache takes before another split gets work.
const LEAST_CHUNKS: u32 = 8;

/// What a decode plan is made from.
pub struct DecodeParts<'a> {
    /// The model as described.
    pub spec: &'a ModelSpec,
    /// Where its weights lie.
    pub model: &'a FusedModel,
    /// Address of the weights' memory.
    pub weights: u64,
    /// The step's buffers and the cache.
    pub buffers: &'a Buffers,
    /// The device, and what was chosen for it.
    pub target: Target,
}

/// The launches of a step, in parts that follow one another.
#[derive(Debug, Clone, Default)]
pub struct DecodePlan {
    /// From the token to the residual stream behind the last layer.
    pub body: Plan,
    /// What makes a residual stream that a prompt left ready for the head.
    pub ready: Plan,
    /// From the stream to logits and each block's best token.
    pub head: Plan,
    /// The best token becomes the next step's.
    pub advance: Plan,
}

/// Something of a step for every depth.
#[derive(Debug, Clone)]
pub struct ByDepth<T> {
    /// For any depth.
    pub full: T,
    /// For positions up to the number of each, the shortest first.
    pub first: Vec<(usize, T)>,
}

/// The plans of a step; those of the first positions are launched as it is best for them, and give the same but for rounding.
pub type Plans = ByDepth<DecodePlan>;

impl<T> ByDepth<T> {
    /// What is for a step at `position`, and how many steps from there it is for.
    pub fn at(&self, position: usize) -> (&T, usize) {
        let first = self.first.iter().find(|(reach, _)| position <= *reach);
        first.map_or((&self.full, usize::MAX), |(reach, first)| (first, reach - position + 1))
    }

    /// The same of everything made otherwise.
    ///
    /// # Errors
    /// The first of `make`.
    pub fn map<U>(&self, make: impl Fn(&T) -> Result<U>) -> Result<ByDepth<U>> {
        let first = self.first.iter().map(|(reach, first)| Ok((*reach, make(first)?)));
        Ok(ByDepth {
            full: make(&self.full)?,
            first: first.collect::<Result<_>>()?,
        })
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.full).chain(self.first.iter().map(|(_, first)| first))
    }

    /// Each of them, in the same order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        std::iter::once(&mut self.full).chain(self.first.iter_mut().map(|(_, first)| first))
    }
}

impl Plans {
    /// What `plan` makes for each depth of `target`: for any, and for the first positions where fewer splits of `attentions`,
    /// which are all of the model's, do as well or better; none of those where one launch of attention serves all.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub(super) fn new(
        target: Target,
        attentions: impl Fn(&Target) -> std::result::Result<Vec<AttentionPlan>, ShapeError>,
        plan: impl Fn(Target) -> Result<DecodePlan>,
    ) -> Result<Self> {
        let full = plan(target)?;
        let mut first = Vec::new();
        let of = |target: &Target| attentions(target).map_err(DeviceError::new);
        if of(&target)?.iter().any(|plan| plan.splits == 1) {
            return Ok(Self { full, first });
        }
        for depth in [Depth::OneSplit, Depth::FewSplits, Depth::SeveralClusters] {
            let target = Target { depth, ..target };
            let attentions = of(&target)?;
            if depth == Depth::SeveralClusters && attentions.iter().all(|plan| plan.parts() == 1) {
                continue;
            }
            let reach = attentions.into_iter().map(|plan| {
                let reach = match depth {
                    Depth::OneSplit => plan.reach(),
                    _ => plan.best_to(),
                };
                reach as usize
            });
            if let Some(reach) = reach.min() {
                first.push((reach, plan(target)?));
            }
        }
        Ok(Self { full, first })
    }
}

impl DecodeParts<'_> {
    /// The plan of a step.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plan(&self) -> Result<DecodePlan> {
        let mut plan = DecodePlan::default();
        self.embedding(&mut plan.body)?;
        for (index, (attention, experts)) in self.model.layers.iter().enumerate() {
            self.layer(&mut plan.body, index, attention, experts)
                .map_err(DeviceError::new)?;
        }
        self.ending(&mut plan).map_err(DeviceError::new)?;
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
            kind: tile_kind(tiled.ty) as u32,
        }
    }

    /// The table of embeddings as its launch takes it.
    pub(super) fn embedding_table(&self) -> (TensorType, DevicePtr<u8>, Table) {
        let shape = Table {
            rows: self.spec.vocab_size as u32,
            columns: self.spec.embedding_length as u32,
            scale: self.spec.embedding.scale,
        };
        let ty = self.spec.embedding.table.matrix.ty;
        (ty, self.at(self.model.embedding), shape)
    }

    fn embedding(&self, plan: &mut Plan) -> Result<()> {
        let (table, spec, b) = (&self.spec.embedding.table.matrix, self.spec, &self.buffers.step);
        let (ty, rows, shape) = self.embedding_table();
        let launch = sparkinfer_device::embed::launch(ty, rows, shape, b.state.cast(), b.stream.x, 1);
        plan.push(
            "embed",
            None,
            table.row_bytes() as u64,
            launch.map_err(DeviceError::new)?,
        );
        plan.mark_residual(b.stream.x.as_raw(), spec.embedding_length);
        if let Some((attention, _)) = self.model.layers.first() {
            self.enter(plan, attention.norm).map_err(DeviceError::new)?;
        }
        Ok(())
    }

    /// Completes a stream of which x is there, for the norm whose gains lie at `norm`.
    fn enter(&self, plan: &mut Plan, norm: u64) -> std::result::Result<(), ShapeError> {
        let launch = beginning(&self.buffers.step, self.at(norm), self.spec.embedding_length as u32)?;
        plan.push("enter", None, 0, launch);
        Ok(())
    }

    fn layer(
        &self,
        plan: &mut Plan,
        index: usize,
        attention: &FusedAttention,
        experts: &FusedExperts,
    ) -> std::result::Result<(), ShapeError> {
        let b = self.buffers;
        let shape = self.layer_shape(attention, experts)?;
        let weights = self.layer_weights(index, attention, experts);
        let launches = layer(&shape, &weights, &b.cache(index), &b.step)?;
        for ((name, bytes), launch) in stages(attention, experts).into_iter().zip(launches) {
            plan.push(name, Some(index), bytes, launch);
            if matches!(name, "o_proj" | "down") {
                plan.mark_residual(b.step.stream.x.as_raw(), self.spec.embedding_length);
            }
        }
        Ok(())
    }

    /// The shapes of a layer as its launches take them.
    pub(super) fn layer_shape(
        &self,
        attention: &FusedAttention,
        experts: &FusedExperts,
    ) -> std::result::Result<LayerShape, ShapeError> {
        let b = self.buffers;
        let attend = attention_shape(self.spec, &attention.spec, b.page_bytes);
        let head_dim = attention.spec.head_dim as u32;
        Ok(LayerShape {
            even: self.target.even(),
            shallow: matches!(self.target.depth, Depth::OneSplit | Depth::FewSplits),
            attention: self.target.attention(attend, b.format, head_dim)?,
            experts: self.expert_shape(experts),
        })
    }

    /// The experts of a layer as kernels take them.
    pub(super) fn expert_shape(&self, part: &FusedExperts) -> ExpertShape {
        ExpertShape {
            experts: part.spec.experts as u32,
            used: part.spec.used as u32,
            columns: self.spec.embedding_length as u32,
            ff: part.spec.width as u32,
            eps: self.spec.norm_eps,
            reserved: 0,
        }
    }

    /// Where the weights of layer `index` lie.
    pub(super) fn layer_weights(
        &self,
        index: usize,
        attention: &FusedAttention,
        experts: &FusedExperts,
    ) -> LayerWeights {
        let next = self.model.layers.get(index + 1);
        let next_norm = next.map_or(self.model.output_norm, |(attention, _)| attention.norm);
        let [q_norm, k_norm] = attention.head_norms.map(|norm| self.optional(norm));
        LayerWeights {
            attention_norm: self.at(attention.norm),
            qkv: attention.qkv.each_ref().map(|tiled| self.matrix(tiled)),
            qkv_bias: DevicePtr::null(),
            q_norm,
            k_norm,
            frequencies: self.at(attention.frequencies),
            output: self.matrix(&attention.output),
            expert_norm: self.at(experts.norm),
            router: self.at(experts.router),
            gate: self.matrix(&experts.gate),
            up: self.matrix(&experts.up),
            down: self.matrix(&experts.down),
            next_norm: self.at(next_norm),
        }
    }

    fn ending(&self, plan: &mut DecodePlan) -> std::result::Result<(), ShapeError> {
        let (b, output) = (self.buffers, &self.model.output);
        let end = Ending {
            matrix: self.matrix(output),
            shape: HeadShape {
                rows: self.spec.vocab_size as u32,
                columns: self.spec.embedding_length as u32,
                eps: self.spec.norm_eps,
                softcap: self.spec.logit_softcap.unwrap_or(0.0),
            },
            logits: b.logits,
            best: b.best,
            blocks: self.head_blocks(),
            ring: b.ring,
            ring_length: b.ring_length,
        };
        self.enter(&mut plan.ready, self.model.output_norm)?;
        let [head, advance] = ending(&end, &b.step)?;
        plan.head.push("head", None, output.expert_bytes, head);
        plan.advance.push("advance", None, 0, advance);
        Ok(())
    }

    fn head_blocks(&self) -> u32 {
        self.target.head_blocks().min(self.model.output.rows.div_ceil(16))
    }
}

/// The names of a layer's launches and the bytes of weights that each must read.
pub(super) fn stages(attention: &FusedAttention, experts: &FusedExperts) -> [(&'static str, u64); 5] {
    let used = experts.spec.used as u64;
    let qkv = attention.qkv.iter().map(|tiled| tiled.expert_bytes).sum();
    let gate_up = experts.gate.expert_bytes + experts.up.expert_bytes;
    [
        ("norm_qkv", qkv),
        ("attention", 0),
        (
            "o_proj",
            attention.output.expert_bytes + experts.spec.router.matrix.bytes(),
        ),
        ("gate_up", used * gate_up),
        ("down", used * experts.down.expert_bytes),
    ]
}

/// The sizes of the buffers that the plan of `model` uses, whatever is chosen for the device.
pub fn buffer_sizes(spec: &ModelSpec, model: &FusedModel, room: CacheRoom, target: &Target) -> BufferSizes {
    let format = room.format;
    let most = |f: &dyn Fn(&Attention, &Moe) -> usize| {
        let sizes = model
            .layers
            .iter()
            .map(|(attention, experts)| f(&attention.spec, &experts.spec));
        sizes.max().unwrap_or(0)
    };
    BufferSizes {
        hidden: spec.embedding_length,
        qkv: most(&|a, _| (a.heads + 2 * a.kv_heads) * a.head_dim),
        attended: most(&|a, _| a.heads * a.head_dim),
        experts: most(&|_, moe| moe.experts),
        inner: most(&|_, moe| moe.used * moe.width),
        vocab: spec.vocab_size,
        candidates: target.most_candidates(),
        partial: most(&|a, _| attention_workspace(spec, a, format, target)),
        heads: most(&|a, _| a.heads),
        work: 0,
        layers: model.layers.len(),
        format,
        page_bytes: most(&|a, _| page_bytes(format, a) as usize),
        pages: room.sequences * pages_for(room.context),
    }
}

/// Floats of workspace that a part's attention needs at most.
pub(super) fn attention_workspace(spec: &ModelSpec, attention: &Attention, format: KvFormat, target: &Target) -> usize {
    let shape = attention_shape(spec, attention, page_bytes(format, attention));
    target.attention_workspace(shape, format, attention.head_dim as u32)
}

/// Bytes of one page of a part's keys, and of its values.
pub(super) fn page_bytes(format: KvFormat, attention: &Attention) -> u32 {
    format.page_bytes(attention.kv_heads as u32, attention.head_dim as u32)
}

/// The attention kernels' constants for a part whose cache has pages `page_bytes` apart.
pub(super) fn attention_shape(spec: &ModelSpec, attention: &Attention, page_bytes: u32) -> AttentionShape {
    AttentionShape {
        heads: attention.heads as u32,
        kv_heads: attention.kv_heads as u32,
        rotated: attention.rope.dims as u32,
        pairing: match attention.rope.layout {
            RopeLayout::Halves => Pairing::Halves as u32,
            RopeLayout::Interleaved => Pairing::Neighbours as u32,
        },
        window: attention.window.unwrap_or(0) as u32,
        page_bytes,
        least_chunks: LEAST_CHUNKS,
        eps: spec.norm_eps,
        scale: attention.scale,
        mscale: attention.rope.magnitude(),
        softcap: attention.softcap.unwrap_or(0.0),
    }
}

fn tile_kind(ty: TensorType) -> TileKind {
    match ty {
        TensorType::Q6_K => TileKind::Q6K,
        _ => TileKind::Q4K,
    }
}
