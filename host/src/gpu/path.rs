//! Which kernels compute a model: the fused ones where they take it, else the general ones.

use super::backend::{Backend, Result};
use super::batch::{Batch, BatchSizes};
use super::buffers::{BufferSizes, Buffers, CacheRoom};
use super::decode::{DecodeParts, DecodePlan, Plans, attention_shape, buffer_sizes};
use super::dense::{self, DenseModel, DenseParts};
use super::general::{GeneralModel, GeneralParts};
use super::layers::FusedModel;
use super::prefill;
use super::prompt::tiled::{self, TiledModel};
use super::prompt::{Prompt, PromptSizes};
use super::sampling::DeviceSampler;
use super::target::{Depth, Target};
use super::weights::WeightMap;
use super::{DeviceError, Needs};
use crate::model::{Attention, KvType, ModelSpec};
use crate::tuning::Tuning;
use sparkinfer_device::decode::kv::KvFormat;
use sparkinfer_device::decode::plan::Multiprocessors;

/// How a model is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arithmetic {
    /// As fast as the kernels there are allow.
    #[default]
    Practical,
    /// With f32 activations and weights decoded where they are read: slow, the reference.
    Reference,
}

/// How a model is put on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuOptions {
    /// Room for this many tokens in a sequence.
    pub context: usize,
    /// Sequences that there is room for, and that a step takes at once where the kernels allow it.
    pub sequences: usize,
    /// Type of the key/value cache; f32 is not one of the GPU's.
    pub kv: KvType,
    /// How it is computed.
    pub arithmetic: Arithmetic,
    /// How launches are cut.
    pub tuning: Tuning,
}

impl GpuOptions {
    /// For use: fast, with an f16 cache.
    pub fn practical(context: usize) -> Self {
        Self {
            context,
            sequences: 1,
            kv: KvType::F16,
            arithmetic: Arithmetic::Practical,
            tuning: Tuning::default(),
        }
    }

    /// In f32, with an f16 cache.
    pub fn reference(context: usize) -> Self {
        Self {
            arithmetic: Arithmetic::Reference,
            ..Self::practical(context)
        }
    }

    /// The cache's type as kernels have it.
    fn format(&self) -> Result<KvFormat> {
        match self.kv {
            KvType::F16 => Ok(KvFormat::F16),
            KvType::Bf16 => Ok(KvFormat::Bf16),
            KvType::Q8_0 => Ok(KvFormat::Q8_0),
            KvType::F32 => Err(DeviceError(
                "a GPU's key/value cache is f16, bf16 or q8_0, not f32: use another --kv-type".into(),
            )),
        }
    }
}

/// A model as one of the kinds of kernels takes it.
#[derive(Debug, Clone, PartialEq)]
enum Described {
    Fused(Box<FusedModel>),
    Dense(Box<DenseModel>),
    General(Box<GeneralModel>),
}

/// Where a model's weights go, and what else it needs: known before anything is allocated, and known to be such that
/// every launch of its plan is allowed.
pub struct Layout {
    /// What lies where in the weights' memory.
    pub map: WeightMap,
    /// Sizes of all other buffers.
    pub sizes: BufferSizes,
    /// Sizes of the memory of a prompt's chunk, where prompts go through the kernels for them.
    prompt: Option<PromptSizes>,
    /// Sizes of the memory of a step of several sequences, where the kernels take one.
    batch: Option<BatchSizes>,
    model: Described,
    /// What the launches are shaped for.
    target: Target,
}

impl Layout {
    /// The layout of the model of `spec` on a device of `multiprocessors`.
    ///
    /// # Errors
    /// A model or a type of cache that no kind of kernels takes, saying what of it.
    pub fn new(spec: &ModelSpec, options: &GpuOptions, multiprocessors: u32) -> Result<Self> {
        let room = CacheRoom {
            format: options.format()?,
            context: options.context,
            sequences: options.sequences.max(1),
        };
        let target = Target {
            multiprocessors: Multiprocessors {
                count: multiprocessors,
                shared_bytes: 0,
            },
            tuning: options.tuning,
            depth: Depth::Any,
            clusters: false,
            parts: false,
        };
        target.tuning.check().map_err(DeviceError)?;
        let exact = options.arithmetic == Arithmetic::Reference;
        if !exact {
            for fast in [Self::fused, Self::dense] {
                match fast(spec, room, target) {
                    Ok(layout) => return Ok(layout),
                    Err(reason) => tracing::info!(%reason, "fused kernels do not take the model"),
                }
            }
        }
        let mut map = WeightMap::new();
        let model = GeneralModel::describe(spec, exact, &mut map);
        let sizes = model.buffer_sizes(spec, room, &target);
        Self {
            map,
            sizes,
            prompt: None,
            batch: None,
            model: Described::General(Box::new(model)),
            target,
        }
        .checked(spec)
        .map(|layout| layout.with_tiled_prompt(spec, room))
    }

    fn fused(spec: &ModelSpec, room: CacheRoom, target: Target) -> Result<Self> {
        let mut map = WeightMap::new();
        let model = FusedModel::describe(spec, &mut map).map_err(DeviceError::new)?;
        let sizes = buffer_sizes(spec, &model, room, &target);
        let prompt = prefill::sizes(spec, &model, room.context, target.tuning.prompt_chunk as usize);
        let batch = BatchSizes::new(&model, &sizes, room.sequences);
        let model = Described::Fused(Box::new(model));
        Self {
            map,
            sizes,
            prompt: prompt.map(PromptSizes::Fused),
            batch,
            model,
            target,
        }
        .checked(spec)
    }

    fn dense(spec: &ModelSpec, room: CacheRoom, target: Target) -> Result<Self> {
        let mut map = WeightMap::new();
        let model = DenseModel::describe(spec, &mut map).map_err(DeviceError::new)?;
        let sizes = dense::buffer_sizes(spec, &model, room, &target);
        Self {
            map,
            sizes,
            prompt: None,
            batch: None,
            model: Described::Dense(Box::new(model)),
            target,
        }
        .checked(spec)
        .map(|layout| layout.with_tiled_prompt(spec, room))
    }

    /// The same, with prompts in chunks if all launches of one are allowed.
    fn with_tiled_prompt(mut self, spec: &ModelSpec, room: CacheRoom) -> Self {
        let sizes = tiled::sizes(spec, room.context, self.target.tuning.prompt_chunk as usize);
        let model = self.tiled(spec, 0, &Buffers::nowhere(&self.sizes));
        let taken = model.is_some_and(|model| model.taken(&sizes));
        self.prompt = taken.then_some(PromptSizes::Tiled(sizes));
        self
    }

    /// What prompts are made from, where tiles of any type take them.
    fn tiled(&self, spec: &ModelSpec, weights: u64, buffers: &Buffers) -> Option<TiledModel> {
        let target = self.target;
        match &self.model {
            Described::Fused(_) => None,
            Described::Dense(model) => Some(
                DenseParts {
                    spec,
                    model,
                    weights,
                    buffers,
                    target,
                }
                .tiled(),
            ),
            Described::General(model) => GeneralParts {
                spec,
                model,
                weights,
                buffers,
                target,
            }
            .tiled(),
        }
    }

    /// The same, if all launches are allowed.
    fn checked(self, spec: &ModelSpec) -> Result<Self> {
        self.plans(spec, 0, &Buffers::nowhere(&self.sizes))?;
        Ok(self)
    }

    /// The plans of a step, with the weights' memory at `weights`.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plans(&self, spec: &ModelSpec, weights: u64, buffers: &Buffers) -> Result<Plans> {
        self.plans_as(*self.tuning(), spec, weights, buffers)
    }

    /// The same, with launches cut as `tuning` says.
    ///
    /// # Errors
    /// As [`Layout::plans`]; a choice that is out of its range.
    pub fn plans_as(&self, tuning: Tuning, spec: &ModelSpec, weights: u64, buffers: &Buffers) -> Result<Plans> {
        tuning.check().map_err(DeviceError)?;
        let target = Target {
            tuning,
            parts: matches!(self.model, Described::Fused(_)),
            ..self.target
        };
        let plan = |target| self.plan(target, spec, weights, buffers);
        if let Described::General(_) = self.model {
            return Ok(Plans {
                full: plan(target)?,
                first: Vec::new(),
            });
        }
        let attentions = |target: &Target| {
            let plan = |attention: &Attention| {
                let shape = attention_shape(spec, attention, buffers.page_bytes);
                target.attention(shape, buffers.format, attention.head_dim as u32)
            };
            spec.attentions().map(plan).collect()
        };
        Plans::new(target, attentions, plan)
    }

    /// The plan of a step that is shaped for `target`.
    fn plan(&self, target: Target, spec: &ModelSpec, weights: u64, buffers: &Buffers) -> Result<DecodePlan> {
        match &self.model {
            Described::Fused(model) => DecodeParts {
                spec,
                model,
                weights,
                buffers,
                target,
            }
            .plan(),
            Described::Dense(model) => DenseParts {
                spec,
                model,
                weights,
                buffers,
                target,
            }
            .plan(),
            Described::General(model) => GeneralParts {
                spec,
                model,
                weights,
                buffers,
                target,
            }
            .plan(),
        }
    }

    /// What prompts go through, its memory allocated; none where they go token by token.
    ///
    /// # Errors
    /// Out of memory.
    pub fn prompt<B: Backend>(
        &self,
        backend: &B,
        spec: &ModelSpec,
        weights: u64,
        buffers: &Buffers,
    ) -> Result<Option<Prompt>> {
        match (&self.prompt, &self.model) {
            (Some(PromptSizes::Fused(sizes)), Described::Fused(model)) => {
                let parts = DecodeParts {
                    spec,
                    model,
                    weights,
                    buffers,
                    target: self.target,
                };
                prefill::prompt(backend, &parts, sizes).map(Some)
            }
            (Some(PromptSizes::Tiled(sizes)), _) => self
                .tiled(spec, weights, buffers)
                .map(|model| model.prompt(backend, sizes))
                .transpose(),
            _ => Ok(None),
        }
    }

    /// What steps of several sequences go through, its memory allocated; none where they go one after the other.
    ///
    /// # Errors
    /// Out of memory.
    pub fn batch<B: Backend>(
        &self,
        backend: &B,
        spec: &ModelSpec,
        weights: u64,
        buffers: &Buffers,
    ) -> Result<Option<Batch<B::Recording>>> {
        let (Some(sizes), Described::Fused(model)) = (self.batch, &self.model) else {
            return Ok(None);
        };
        let parts = DecodeParts {
            spec,
            model,
            weights,
            buffers,
            target: self.target,
        };
        Batch::new(backend, &parts, sizes).map(Some)
    }

    /// Cuts the plans that are made from now on as `tuning` says; memory stays as it is.
    pub fn retune(&mut self, tuning: Tuning) {
        self.target.tuning = tuning;
    }

    /// What plans that are made from now on are told of the device: whether they may have clusters, and how many bytes of
    /// shared memory a multiprocessor has.
    pub fn set_device(&mut self, clusters: bool, shared_bytes: u32) {
        self.target.multiprocessors.shared_bytes = shared_bytes;
        self.target.clusters = clusters;
    }

    /// How launches are cut.
    pub fn tuning(&self) -> &Tuning {
        &self.target.tuning
    }

    /// The model as the fused kernels take it, if they do.
    pub fn fused_model(&self) -> Option<&FusedModel> {
        match &self.model {
            Described::Fused(model) => Some(model),
            Described::Dense(_) | Described::General(_) => None,
        }
    }

    /// What is said of the arithmetic behind the device's name.
    pub fn kind(&self) -> &'static str {
        match &self.model {
            Described::Fused(_) | Described::Dense(_) => "",
            Described::General(model) if model.exact => ", f32 reference",
            Described::General(_) => ", general kernels",
        }
    }

    /// The memory that all of it takes.
    pub fn needs(&self) -> Needs {
        Needs {
            weights: self.map.bytes(),
            cache: self.sizes.cache_bytes(),
            scratch: self.sizes.scratch_bytes()
                + self.prompt.as_ref().map_or(0, |prompt| prompt.bytes() as u64)
                + self.batch.as_ref().map_or(0, |batch| batch.bytes() as u64)
                + DeviceSampler::bytes(self.sizes.vocab) as u64,
        }
    }
}
