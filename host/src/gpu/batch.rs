//! A step of several sequences at once: the plan for each number of them, and the memory that they need.
//!
//! Rows of activations go through the kernels of [prompts](super::prefill), attention is the decode step's over each
//! sequence's own pages. So a row's logits do not depend on the other rows, nor on how many there are; they differ from
//! those of a step for one sequence by rounding.

#[cfg(all(test, feature = "bundled-model"))]
mod tests;

use cuda_std::DevicePtr;
use sparkinfer_device::decode::StepState;
use sparkinfer_device::decode::attention::AttentionPlan;
use sparkinfer_device::decode::best::{self, best};
use sparkinfer_device::decode::head::Best;
use sparkinfer_device::decode::rows::{Matrix, TileKind};
use sparkinfer_device::prefill::gemm::{GemmShape, gemm};
use sparkinfer_device::prefill::many::{ManyBuffers, layer_of_many};
use sparkinfer_device::prefill::split::split;
use sparkinfer_device::shape::ShapeError;

use super::backend::{Backend, DeviceError, Memory, Result};
use super::buffers::BufferSizes;
use super::decode::DecodeParts;
use super::layers::FusedModel;
use super::plan::Plan;
use super::prefill::Prompt;
use crate::model::ModelSpec;

/// Sizes that the memory follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSizes {
    /// Sequences of a step at most.
    pub sequences: usize,
    /// Pages that a sequence holds at most.
    pub pages: usize,
    /// Floats of workspace of a sequence's attention.
    pub partial: usize,
    /// Query heads, in the layer that has most.
    pub heads: usize,
    /// Logits.
    pub vocab: usize,
}

impl BatchSizes {
    /// For `sequences` sequences with buffers of `sizes`, if the kernels take the model.
    pub fn new(spec: &ModelSpec, model: &FusedModel, sizes: &BufferSizes, sequences: usize) -> Option<Self> {
        let groups = model
            .layers
            .iter()
            .map(|(part, _)| part.spec.heads / part.spec.kv_heads.max(1));
        let taken = groups.max().unwrap_or(0) <= 8 && spec.logit_softcap.is_none();
        (taken && sequences > 1).then_some(Self {
            sequences,
            pages: sizes.pages / sequences,
            partial: sizes.partial,
            heads: sizes.heads,
            vocab: sizes.vocab,
        })
    }

    /// Floats from one row of logits to the next: whole groups of 16 rows of the matrix.
    fn stride(&self) -> usize {
        self.vocab.next_multiple_of(16)
    }

    /// The byte offsets of states, tables, workspace, counters, logits, candidates and next tokens; then the end.
    fn places(&self) -> [usize; 8] {
        let words = [
            4,
            self.pages,
            self.partial,
            self.heads,
            self.stride(),
            2 * best::BLOCKS as usize,
            1,
        ];
        let mut places = [0; 8];
        for (i, words) in words.into_iter().enumerate() {
            places[i + 1] = (places[i] + 4 * self.sequences * words).next_multiple_of(256);
        }
        places
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.places()[7]
    }
}

/// The model's end as the kernels take it.
struct End {
    norm: DevicePtr<f32>,
    eps: f32,
    columns: u32,
    output: Matrix,
    bytes: u64,
}

/// What the plans are made from, the memory that they work in, and what was recorded of them.
pub struct Batch<R> {
    sizes: BatchSizes,
    many: ManyBuffers,
    logits: DevicePtr<f32>,
    candidates: DevicePtr<Best>,
    next: DevicePtr<u32>,
    end: End,
    multiprocessors: u32,
    /// The page tables on the device.
    uploaded: Vec<Vec<u32>>,
    /// The step of as many sequences as the index says, and one.
    recorded: Vec<Option<R>>,
    _memory: Box<dyn Memory>,
}

impl<R> Batch<R> {
    /// Allocates the memory.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new<B: Backend<Recording = R>>(backend: &B, parts: &DecodeParts<'_>, sizes: BatchSizes) -> Result<Self> {
        let memory = backend.allocate(sizes.bytes())?;
        let places = sizes.places().map(|place| memory.address() + place as u64);
        let output = &parts.model.output;
        Ok(Self {
            sizes,
            many: ManyBuffers {
                states: DevicePtr::from_raw(places[0]),
                tables: DevicePtr::from_raw(places[1]),
                pages: sizes.pages as u32,
                partial: DevicePtr::from_raw(places[2]),
                counters: DevicePtr::from_raw(places[3]),
            },
            logits: DevicePtr::from_raw(places[4]),
            candidates: DevicePtr::from_raw(places[5]),
            next: DevicePtr::from_raw(places[6]),
            end: End {
                norm: parts.at(parts.model.output_norm),
                eps: parts.spec.norm_eps,
                columns: parts.spec.embedding_length as u32,
                output: parts.matrix(output),
                bytes: output.expert_bytes,
            },
            multiprocessors: parts.target.multiprocessors,
            uploaded: vec![Vec::new(); sizes.sequences],
            recorded: (0..sizes.sequences).map(|_| None).collect(),
            _memory: memory,
        })
    }

    /// Sequences of a step at most.
    pub fn sequences(&self) -> usize {
        self.sizes.sequences
    }

    /// The logits of row `row` of the last step.
    pub fn logits(&self, row: usize) -> DevicePtr<f32> {
        DevicePtr::from_raw(self.logits.as_raw() + 4 * (row * self.sizes.stride()) as u64)
    }

    /// The likeliest tokens of the last step's rows.
    pub fn next(&self) -> DevicePtr<u32> {
        self.next
    }

    /// Tells the device the pages of the sequence in row `row`.
    ///
    /// # Errors
    /// The driver's.
    pub fn set_pages<B: Backend>(&mut self, backend: &B, row: usize, pages: &[u32]) -> Result<()> {
        if !self.uploaded[row].starts_with(pages) {
            let table = self.many.tables.as_raw() + 4 * (row * self.sizes.pages) as u64;
            backend.write(table, bytemuck::cast_slice(pages))?;
            self.uploaded[row] = pages.to_vec();
        }
        Ok(())
    }

    /// Enqueues the step of as many sequences as there are `states`, whose pages the device knows.
    ///
    /// # Errors
    /// The backend's, or a shape that a kernel does not take.
    pub fn step<B: Backend<Recording = R>>(
        &mut self,
        backend: &B,
        prompt: &Prompt,
        states: &[StepState],
    ) -> Result<()> {
        let tokens: Vec<u32> = states.iter().map(|state| state.token).collect();
        backend.write(prompt.tokens().as_raw(), bytemuck::cast_slice(&tokens))?;
        backend.write(self.many.states.as_raw(), bytemuck::cast_slice(states))?;
        let index = states.len() - 1;
        if self.recorded[index].is_none() {
            let plan = self.plan(prompt, states.len() as u32)?;
            self.recorded[index] = Some(backend.record(&plan.launches())?);
        }
        self.recorded[index]
            .as_ref()
            .map_or(Ok(()), |recording| backend.replay(recording))
    }

    /// The launches of a step of `rows` sequences, from their tokens to their logits and likeliest next tokens.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plan(&self, prompt: &Prompt, rows: u32) -> Result<Plan> {
        let mut plan = Plan::default();
        prompt.embed(&mut plan, rows)?;
        let mut push = || -> std::result::Result<(), ShapeError> {
            self.layers(&mut plan, prompt, rows)?;
            self.ending(&mut plan, prompt, rows)
        };
        push().map_err(DeviceError::new)?;
        Ok(plan)
    }

    fn layers(&self, plan: &mut Plan, prompt: &Prompt, rows: u32) -> std::result::Result<(), ShapeError> {
        for (i, layer) in prompt.layers.iter().enumerate() {
            let shape = &layer.shape;
            let attention = AttentionPlan::new(shape.attention, shape.format, shape.head_dim, self.multiprocessors)?;
            let (weights, cache, b) = (&layer.weights, &layer.cache, &prompt.buffers);
            for named in layer_of_many((shape, &attention), weights, cache, b, &self.many, rows)? {
                plan.push(named.name, Some(i), named.bytes, named.launch);
            }
        }
        Ok(())
    }

    fn ending(&self, plan: &mut Plan, prompt: &Prompt, rows: u32) -> std::result::Result<(), ShapeError> {
        let (b, end) = (&prompt.buffers, &self.end);
        let none = Matrix::new(DevicePtr::null(), 0, TileKind::Q4K);
        let head = GemmShape {
            matrices: [end.output, none, none],
            columns: end.columns,
            tokens: rows,
            add: 0,
            reserved: 0,
        };
        let normed = split(b.x, end.norm, b.records, b.factors, rows, end.columns, end.eps)?;
        let shape = (rows, self.sizes.vocab as u32, self.sizes.stride() as u32);
        let [blocks, choice] = best(self.logits, shape, self.candidates, self.next)?;
        plan.push("split_x", None, 0, normed);
        plan.push("head", None, end.bytes, gemm(b.records, b.factors, self.logits, head)?);
        plan.push("best", None, 0, blocks);
        plan.push("best", None, 0, choice);
        Ok(())
    }
}
