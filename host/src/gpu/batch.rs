//! A step of several sequences at once: the plan for each number of them, and the memory that they need.
//!
//! A row's logits do not depend on the other rows, nor on how many there are; they may differ from those of a step for one
//! sequence by rounding. A greedy step leaves on the device what the next one begins with, so that nothing goes there as
//! long as the same sequences go on.

#[cfg(all(test, feature = "bundled-model"))]
mod tests;

use cuda_std::DevicePtr;
use sparkinfer_device::decode::StepState;
use sparkinfer_device::decode::choices::MAX_USED;
use sparkinfer_device::decode::head::HeadShape;
use sparkinfer_device::decode::many::advance::{Next, SLOTS};
use sparkinfer_device::decode::many::plan::{Ending, ManyBuffers, beginning, ending, layer};
use sparkinfer_device::decode::many::{MOST, Streams};
use sparkinfer_device::decode::plan::{LayerCache, LayerShape, LayerWeights};
use sparkinfer_device::decode::residual::Residual;
use sparkinfer_device::decode::state::NO_TOKEN;
use sparkinfer_device::embed::Table;
use sparkinfer_device::shape::ShapeError;
use sparkinfer_gguf::TensorType;

use super::backend::{Backend, DeviceError, HostVisible, Memory, Result};
use super::buffers::BufferSizes;
use super::decode::{DecodeParts, stages};
use super::engine::emitted;
use super::layers::FusedModel;
use super::layers::{FusedAttention, FusedExperts};
use super::plan::Plan;

/// Sizes that the memory follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSizes {
    /// Sequences of a step at most.
    pub sequences: usize,
    /// Pages that a sequence holds at most.
    pub pages: usize,
    /// What a step of one works in.
    pub one: BufferSizes,
}

/// Number of buffers.
const BUFFERS: usize = 15;

impl BatchSizes {
    /// For `sequences` sequences with buffers of `sizes`, if the kernels take the model.
    pub fn new(model: &FusedModel, sizes: &BufferSizes, sequences: usize) -> Option<Self> {
        let taken = model.layers.iter().all(|(part, _)| {
            let groups = part.spec.heads / part.spec.kv_heads.max(1);
            groups <= 8 && matches!(part.spec.head_dim, 64 | 128)
        });
        (taken && sequences > 1).then_some(Self {
            sequences: sequences.min(MOST as usize),
            pages: sizes.pages / sequences,
            one: *sizes,
        })
    }

    /// Floats from one row of logits to the next: whole groups of 16 rows of the matrix.
    fn stride(&self) -> usize {
        self.one.vocab.next_multiple_of(16)
    }

    /// The byte offsets of the buffers, and the bytes of all.
    fn places(&self) -> ([usize; BUFFERS], usize) {
        let one = &self.one;
        let words = [
            4,
            1,
            one.hidden,
            one.hidden,
            one.hidden / 16,
            one.hidden / 16,
            one.qkv,
            one.attended,
            one.partial,
            one.heads,
            one.experts,
            2 * MAX_USED as usize,
            one.inner,
            self.pages,
            self.stride() + 2 * one.candidates,
        ];
        let mut end = 0;
        let places = words.map(|words| {
            let place = end;
            end = (place + 4 * self.sequences * words).next_multiple_of(256);
            place
        });
        (places, end)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.places().1
    }

    /// The buffers in memory at `address`, and how a step ends in them, with its tokens in the ring at `ring`.
    fn buffers(&self, address: u64, ring: u64, parts: &DecodeParts<'_>) -> (ManyBuffers, Ending) {
        let (places, _) = self.places();
        let at = |i: usize| address + places[i] as u64;
        let logits_bytes = (4 * self.sequences * self.stride()) as u64;
        let buffers = ManyBuffers {
            streams: Streams {
                first: Residual {
                    x: DevicePtr::from_raw(at(2)),
                    gained: DevicePtr::from_raw(at(3)),
                    squares: DevicePtr::from_raw(at(4)),
                },
                peaks: DevicePtr::from_raw(at(5)),
            },
            qkv: DevicePtr::from_raw(at(6)),
            attention: DevicePtr::from_raw(at(7)),
            partial: DevicePtr::from_raw(at(8)),
            counters: DevicePtr::from_raw(at(9)),
            router_logits: DevicePtr::from_raw(at(10)),
            choices: DevicePtr::from_raw(at(11)),
            h: DevicePtr::from_raw(at(12)),
            tables: DevicePtr::from_raw(at(13)),
            pages: self.pages as u32,
            states: DevicePtr::from_raw(at(0)),
        };
        let end = Ending {
            matrix: parts.matrix(&parts.model.output),
            shape: HeadShape {
                rows: parts.spec.vocab_size as u32,
                columns: parts.spec.embedding_length as u32,
                eps: parts.spec.norm_eps,
                softcap: parts.spec.logit_softcap.unwrap_or(0.0),
            },
            logits: DevicePtr::from_raw(at(14)),
            stride: self.stride() as u32,
            best: DevicePtr::from_raw(at(14) + logits_bytes),
            blocks: parts.target.head_blocks(),
            next: Next {
                states: buffers.states,
                tokens: DevicePtr::from_raw(at(1)),
                ring: DevicePtr::from_raw(ring),
            },
        };
        (buffers, end)
    }
}

/// A layer as the launches take it.
struct BatchLayer {
    shape: LayerShape,
    weights: LayerWeights,
    cache: LayerCache,
    /// The names of its launches, and the bytes of weights that each reads at least.
    stages: [(&'static str, u64); 6],
}

/// What the plans are made from, the memory that they work in, and what was recorded of them.
pub struct Batch<R> {
    sizes: BatchSizes,
    buffers: ManyBuffers,
    end: Ending,
    embedding: (TensorType, DevicePtr<u8>, Table),
    first_norm: DevicePtr<f32>,
    layers: Vec<BatchLayer>,
    head_bytes: u64,
    /// The page tables on the device.
    uploaded: Vec<Vec<u32>>,
    /// What the device begins its next step with, as far as it is known.
    known: Vec<StepState>,
    /// Steps so far: the number of the next one.
    steps: u32,
    /// The tokens of the last steps, written by the device.
    ring: Box<dyn HostVisible>,
    /// The step of as many sequences as the index says, and one.
    recorded: Vec<Option<R>>,
    _memory: Box<dyn Memory>,
}

impl<R> Batch<R> {
    /// Allocates the memory, and collects what the plans need.
    ///
    /// # Errors
    /// Out of memory, or a shape that a kernel does not take.
    pub fn new<B: Backend<Recording = R>>(backend: &B, parts: &DecodeParts<'_>, sizes: BatchSizes) -> Result<Self> {
        let memory = backend.allocate(sizes.bytes())?;
        let ring = backend.host_visible((SLOTS * MOST) as usize)?;
        let (buffers, end) = sizes.buffers(memory.address(), ring.address(), parts);
        let first = parts.model.layers.first();
        Ok(Self {
            sizes,
            buffers,
            end,
            embedding: parts.embedding_table(),
            first_norm: parts.at(first.map_or(parts.model.output_norm, |(attention, _)| attention.norm)),
            layers: layers(parts).map_err(DeviceError::new)?,
            head_bytes: parts.model.output.expert_bytes,
            uploaded: vec![Vec::new(); sizes.sequences],
            known: Vec::new(),
            steps: 0,
            ring,
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
        self.end.logits.add(row * self.sizes.stride())
    }

    /// The likeliest tokens of the rows of step `step`, one of the last [`SLOTS`], waiting for it; [`NO_TOKEN`] where no
    /// logit is a number.
    ///
    /// # Errors
    /// The driver's, of the step too.
    pub fn chosen<B: Backend>(&mut self, backend: &B, step: u32, tokens: &mut [u32]) -> Result<()> {
        let first = (step % SLOTS * MOST) as usize;
        for (row, token) in tokens.iter_mut().enumerate() {
            *token = emitted(backend, self.ring.as_ref(), first + row, step)?;
        }
        if step.wrapping_add(1) == self.steps {
            for (state, &token) in self.known.iter_mut().zip(&*tokens) {
                state.token = token;
            }
        }
        Ok(())
    }

    /// Tells the device the pages of the sequence in row `row`.
    ///
    /// # Errors
    /// The driver's.
    pub fn set_pages<B: Backend>(&mut self, backend: &B, row: usize, pages: &[u32]) -> Result<()> {
        if !self.uploaded[row].starts_with(pages) {
            let table = self.buffers.tables.add(row * self.sizes.pages);
            backend.write(table.as_raw(), bytemuck::cast_slice(pages))?;
            self.uploaded[row] = pages.to_vec();
        }
        Ok(())
    }

    /// Enqueues the step that begins with `states`, but for their step numbers, on pages that the device knows; its number.
    ///
    /// # Errors
    /// The backend's, or a shape that a kernel does not take.
    pub fn step<B: Backend<Recording = R>>(&mut self, backend: &B, states: &[StepState]) -> Result<u32> {
        self.set_states(backend, states)?;
        self.follow(backend, states.len())
    }

    /// Enqueues the step of `rows` sequences that begins with what the last step leaves; its number.
    ///
    /// # Errors
    /// As [`Batch::step`].
    pub fn follow<B: Backend<Recording = R>>(&mut self, backend: &B, rows: usize) -> Result<u32> {
        let index = rows - 1;
        if self.recorded[index].is_none() {
            let plan = self.plan(rows as u32)?;
            self.recorded[index] = Some(backend.record(&plan.launches())?);
        }
        let step = self.steps;
        self.steps = step.wrapping_add(1);
        // What the step leaves: the tokens are known when they are asked for.
        for state in &mut self.known {
            *state = StepState {
                token: NO_TOKEN,
                position: state.position + 1,
                step: self.steps,
                ..*state
            };
        }
        self.recorded[index]
            .as_ref()
            .map_or(Ok(()), |recording| backend.replay(recording))?;
        Ok(step)
    }

    /// Tells the device what the next step begins with, where it does not know.
    ///
    /// # Errors
    /// The driver's.
    pub fn set_states<B: Backend>(&mut self, backend: &B, states: &[StepState]) -> Result<()> {
        let numbered = states.iter().map(|state| StepState {
            step: self.steps,
            ..*state
        });
        let states: Vec<StepState> = numbered.collect();
        if self.known != states {
            let tokens: Vec<u32> = states.iter().map(|state| state.token).collect();
            backend.write(self.end.next.tokens.as_raw(), bytemuck::cast_slice(&tokens))?;
            backend.write(self.buffers.states.as_raw(), bytemuck::cast_slice(&states))?;
            self.known = states;
        }
        Ok(())
    }

    /// The launches of a step of `rows` sequences, from their tokens to their logits and likeliest next tokens.
    ///
    /// # Errors
    /// A shape that a kernel does not take.
    pub fn plan(&self, rows: u32) -> Result<Plan> {
        let mut plan = Plan::default();
        self.launches(&mut plan, rows).map_err(DeviceError::new)?;
        Ok(plan)
    }

    fn launches(&self, plan: &mut Plan, rows: u32) -> std::result::Result<(), ShapeError> {
        let ((ty, table, shape), b) = (self.embedding, &self.buffers);
        let tokens = self.end.next.tokens;
        let embed = sparkinfer_device::embed::launch(ty, table, shape, tokens, b.streams.first.x, rows as usize)?;
        plan.push("embed", None, 0, embed);
        plan.push("enter", None, 0, beginning(b, self.first_norm, shape.columns, rows)?);
        for (i, one) in self.layers.iter().enumerate() {
            let launches = layer(&one.shape, &one.weights, &one.cache, b, rows)?;
            for ((name, bytes), launch) in one.stages.into_iter().zip(launches) {
                plan.push(name, Some(i), bytes, launch);
            }
        }
        let [head, advance] = ending(&self.end, b, rows)?;
        plan.push("head", None, self.head_bytes, head);
        plan.push("advance", None, 0, advance);
        Ok(())
    }
}

/// As [`stages`], with the router in a launch of its own.
fn stages_of_many(attention: &FusedAttention, experts: &FusedExperts) -> [(&'static str, u64); 6] {
    let router = experts.spec.router.matrix.bytes();
    let [qkv, attend, (name, bytes), gate_up, down] = stages(attention, experts);
    [qkv, attend, (name, bytes - router), ("router", router), gate_up, down]
}

/// All layers.
fn layers(parts: &DecodeParts<'_>) -> std::result::Result<Vec<BatchLayer>, ShapeError> {
    let all = parts.model.layers.iter().enumerate();
    all.map(|(i, (attention, experts))| {
        Ok(BatchLayer {
            shape: parts.layer_shape(attention, experts)?,
            weights: parts.layer_weights(i, attention, experts),
            cache: parts.buffers.cache(i),
            stages: stages_of_many(attention, experts),
        })
    })
    .collect()
}
