//! The engine: sequences on one device, the steps of the current one recorded once and replayed.

mod ahead;
mod many;
mod sequences;

use std::ops::ControlFlow;

use sparkinfer_device::decode::StepState;
use sparkinfer_device::decode::sample::SampleShape;
use sparkinfer_device::prefill::append::Chunk;
use sparkinfer_gguf::Gguf;

use super::backend::{Backend, DeviceError, Memory};
use super::batch::Batch;
use super::buffers::Buffers;
use super::decode::{DecodePlan, Plans};
use super::pages::{PagePool, PagedSequence};
use super::path::{GpuOptions, Layout};
use super::prompt::Prompt;
use super::recorded::Recordings;
use super::sampling::{Chooser, DeviceSampler};
use super::{observe, room};
use crate::engine::{self, Description, Engine, EngineError, Sequence, Waiting, check_tokens};
use crate::model::ModelSpec;
use crate::profile::Profile;
use crate::sample::Sampler;
use crate::tuning::Tuning;

pub(super) use ahead::emitted;
use many::Ahead;

/// A model on a device.
pub struct GpuEngine<B: Backend> {
    backend: B,
    description: Description,
    plans: Plans,
    recordings: Recordings<B::Recording>,
    prompt: Option<Prompt>,
    /// Steps of several sequences; none where they go one after the other.
    batch: Option<Batch<B::Recording>>,
    /// The step of them that is under way.
    ahead: Option<Ahead>,
    buffers: Buffers,
    sampler: DeviceSampler,
    spec: ModelSpec,
    layout: Layout,
    weights: Box<dyn Memory>,
    pool: PagePool,
    sequence: PagedSequence,
    waiting: Waiting<PagedSequence>,
    /// The page table on the device.
    uploaded: Vec<u32>,
    /// Tokens emitted on the device so far: the step number of the next one.
    emitted: u32,
    logits: Vec<f32>,
    context: usize,
}

/// Memory goes only when nothing that uses it is under way. Nobody is left to be told an error.
impl<B: Backend> Drop for GpuEngine<B> {
    fn drop(&mut self) {
        let _ = self.backend.synchronize();
    }
}

impl<B: Backend> GpuEngine<B> {
    /// Loads the model of `gguf`, described by `spec`, with room for `context` tokens. `progress` is told the bytes of
    /// weights placed so far and their sum.
    ///
    /// # Errors
    /// A model that the kernels do not take, too little memory (with what is missing), or the driver's.
    pub fn load(
        backend: B,
        gguf: &Gguf,
        spec: &ModelSpec,
        context: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, DeviceError> {
        Self::load_with(backend, gguf, spec, &GpuOptions::practical(context), progress)
    }

    /// As [`GpuEngine::load`], with the cache and the arithmetic asked for.
    ///
    /// # Errors
    /// As [`GpuEngine::load`].
    pub fn load_with(
        backend: B,
        gguf: &Gguf,
        spec: &ModelSpec,
        options: &GpuOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, DeviceError> {
        let mut layout = Layout::new(spec, options, backend.multiprocessors())?;
        layout.set_device(backend.clusters(), backend.multiprocessor_shared_bytes());
        let context = options.context;
        let needs = layout.needs();
        room::check(&backend, &needs, context, spec)?;
        let weights = layout
            .map
            .upload(&backend, gguf, &mut |bytes| progress(bytes, needs.weights))?;
        let buffers = Buffers::allocate(&backend, &layout.sizes)?;
        let plans = layout.plans(spec, weights.address(), &buffers)?;
        let recordings = Recordings::new(&backend, &plans, layout.tuning())?;
        let prompt = layout.prompt(&backend, spec, weights.address(), &buffers)?;
        let batch = layout.batch(&backend, spec, weights.address(), &buffers)?;
        let sampler = DeviceSampler::allocate(&backend, spec.vocab_size)?;
        let pool = PagePool::new(layout.sizes.pages);
        Ok(Self {
            description: Description {
                model: spec.title(),
                device: backend.name() + layout.kind(),
                weight_bytes: needs.weights,
                kv_bytes: needs.cache,
                kv: options.kv,
            },
            backend,
            plans,
            recordings,
            prompt,
            batch,
            ahead: None,
            buffers,
            sampler,
            spec: spec.clone(),
            layout,
            weights,
            pool,
            sequence: PagedSequence::new(),
            waiting: Waiting::new(),
            uploaded: Vec::new(),
            emitted: 0,
            logits: vec![0.0; spec.vocab_size],
            context,
        })
    }

    /// The launches of steps at every depth.
    pub fn plans(&self) -> &Plans {
        &self.plans
    }

    /// The launches of the next step.
    pub fn plan(&self) -> &DecodePlan {
        self.plans.at(self.sequence.len()).0
    }

    /// What prompts go through; none where they go token by token.
    pub fn prompt(&mut self) -> Option<&mut Prompt> {
        self.prompt.as_mut()
    }

    /// Whether two tunings make other launches of a step, or are refused.
    pub fn steps_differ(&self, one: Tuning, other: Tuning) -> bool {
        let launches = |tuning| {
            let plans = self
                .layout
                .plans_as(tuning, &self.spec, self.weights.address(), &self.buffers);
            // Kernel, configuration and the arguments' bytes: everything that a launch is.
            plans.map(|plans| format!("{plans:?}"))
        };
        launches(one) != launches(other)
    }

    /// The device.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Records the step that ends with the device's sampler set to `shape`, if that is not the recorded one.
    fn record_sampled(&mut self, shape: SampleShape) -> Result<(), DeviceError> {
        let steps = self.layout.tuning().graph_steps as usize;
        let ended = |plan: &DecodePlan| {
            let mut step = [plan.body.launches(), plan.head.launches()].concat();
            step.extend(self.sampler.launches(shape, &self.buffers)?);
            Ok(step)
        };
        self.recordings
            .record_sampled(&self.backend, &self.plans, (shape, steps), ended)
    }

    /// Makes the plan and its recordings anew, as `tuning` says; where that fails everything stays as it is.
    fn cut(&mut self, tuning: Tuning) -> Result<(), DeviceError> {
        let plans = self
            .layout
            .plans_as(tuning, &self.spec, self.weights.address(), &self.buffers)?;
        self.recordings = Recordings::new(&self.backend, &plans, &tuning)?;
        self.plans = plans;
        self.layout.retune(tuning);
        if let Some(prompt) = &mut self.prompt {
            prompt.limit(tuning.prompt_chunk as usize);
        }
        Ok(())
    }

    /// Tells the device the next step's token; `draws` is what the numbers of draws are ahead of those of steps.
    fn set_state(&self, token: u32, draws: u32) -> Result<(), DeviceError> {
        let state = StepState {
            token,
            position: self.sequence.len() as u32,
            step: self.emitted,
            draws,
        };
        self.backend
            .write(self.buffers.step.state.as_raw(), bytemuck::bytes_of(&state))
    }

    /// Runs a step for `token`, with logits or without.
    fn step(&mut self, token: u32, logits: bool) -> Result<(), DeviceError> {
        self.set_state(token, 0)?;
        let (steps, _) = self.recordings.steps.at(self.sequence.len());
        if logits {
            self.backend.replay(steps.step.one())?;
            self.emitted = self.emitted.wrapping_add(1);
        } else {
            self.backend.replay(&steps.body)?;
        }
        self.sequence.advance(1);
        Ok(())
    }

    /// Makes the device ready for the step of `token` behind the cached ones, without running it.
    pub(super) fn prepare_step(&mut self, token: u32) -> Result<(), DeviceError> {
        self.reserve(self.sequence.len() + 1)?;
        self.set_state(token, 0)
    }

    /// Counts the step as done whose launches were run one by one, and reads its logits.
    pub(super) fn finish_step(&mut self) -> Result<&[f32], DeviceError> {
        self.sequence.advance(1);
        self.read_logits()
    }

    /// Appends checked tokens, and calls `each` with the logits behind every one from `from` on.
    fn extend(&mut self, tokens: &[u32], from: usize, each: Each<'_>) -> engine::Result<()> {
        self.reserve(self.position() + tokens.len())?;
        let size = self.prompt.as_ref().map_or(1, Prompt::chunk);
        let shortest = self.layout.tuning().shortest_chunk as usize;
        for (i, piece) in tokens.chunks(size).enumerate() {
            let first = i * size;
            if piece.len() < shortest {
                self.steps(piece, first, from, each)?;
            } else {
                self.chunk(piece, first, from, each)?;
            }
        }
        Ok(())
    }

    /// Appends tokens one after the other; `first` is the number of the first among those of [`Self::extend`].
    fn steps(&mut self, tokens: &[u32], first: usize, from: usize, each: Each<'_>) -> engine::Result<()> {
        for (i, &token) in (first..).zip(tokens) {
            self.step(token, i >= from)?;
            if i >= from {
                each(i, self.read_logits()?)?;
            }
        }
        Ok(())
    }

    /// Appends tokens at once; otherwise as [`Self::steps`].
    fn chunk(&mut self, tokens: &[u32], first: usize, from: usize, each: Each<'_>) -> engine::Result<()> {
        let Some(prompt) = &self.prompt else {
            return self.steps(tokens, first, from, each);
        };
        let chunk = Chunk {
            count: tokens.len() as u32,
            position: self.sequence.len() as u32,
        };
        self.backend
            .write(prompt.tokens().as_raw(), bytemuck::cast_slice(tokens))?;
        self.backend.run(&prompt.plan(chunk)?.launches())?;
        self.sequence.advance(tokens.len());
        for i in from.saturating_sub(first)..tokens.len() {
            if let Some(prompt) = &self.prompt {
                self.backend.run(&[prompt.take(i, self.buffers.step.stream.x)?])?;
            }
            self.backend.replay(&self.recordings.head)?;
            each(first + i, self.read_logits()?)?;
        }
        Ok(())
    }

    fn read_logits(&mut self) -> Result<&[f32], DeviceError> {
        self.backend
            .download(self.buffers.logits.as_raw(), bytemuck::cast_slice_mut(&mut self.logits))?;
        Ok(&self.logits)
    }
}

/// What is called with the number of a token and the logits behind it.
type Each<'a> = &'a mut dyn FnMut(usize, &[f32]) -> engine::Result<()>;

impl From<DeviceError> for EngineError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error.0)
    }
}

impl<B: Backend> Engine for GpuEngine<B> {
    fn prefill(&mut self, tokens: &[u32]) -> engine::Result<&[f32]> {
        check_tokens(tokens, self.position(), self.context, self.vocab_size())?;
        self.extend(tokens, tokens.len() - 1, &mut |_, _| Ok(()))?;
        Ok(&self.logits)
    }

    fn decode(&mut self, token: u32) -> engine::Result<&[f32]> {
        self.prefill(&[token])
    }

    fn logits_of_all(
        &mut self,
        tokens: &[u32],
        from: usize,
        each: &mut dyn FnMut(usize, &[f32]) -> engine::Result<()>,
    ) -> engine::Result<()> {
        check_tokens(tokens, self.position(), self.context, self.vocab_size())?;
        self.extend(tokens, from, each)
    }

    fn truncate(&mut self, len: usize) {
        self.sequence.truncate(&mut self.pool, len);
    }

    fn fork(&mut self, len: usize) -> engine::Result<Sequence> {
        Ok(self.fork_current(len))
    }

    fn switch(&mut self, to: Sequence) -> engine::Result<Sequence> {
        self.switch_to(&to)
    }

    fn next_of_many(&mut self, sequences: &mut [Sequence], tokens: &mut [u32]) -> engine::Result<()> {
        self.next_tokens(sequences, tokens)
    }

    fn logits_of_many(&mut self, sequences: &mut [Sequence], tokens: &[u32], each: Each<'_>) -> engine::Result<()> {
        self.logits_of_rows(sequences, tokens, each)
    }

    fn position(&self) -> usize {
        self.sequence.len()
    }

    fn context(&self) -> usize {
        self.context
    }

    fn vocab_size(&self) -> usize {
        self.logits.len()
    }

    fn description(&self) -> &Description {
        &self.description
    }

    fn trace(&mut self, token: u32) -> engine::Result<Vec<Vec<f32>>> {
        check_tokens(&[token], self.position(), self.context, self.vocab_size())?;
        Ok(observe::trace(self, token)?)
    }

    fn read_bandwidth(&mut self) -> engine::Result<Option<f64>> {
        Ok(self.backend.read_bandwidth()?)
    }

    fn profile(&mut self, token: u32, repetitions: usize) -> engine::Result<Option<Profile>> {
        check_tokens(&[token], self.position(), self.context, self.vocab_size())?;
        Ok(Some(observe::profile(self, token, repetitions)?))
    }

    fn profile_of_many(
        &mut self,
        sequences: &[Sequence],
        tokens: &[u32],
        repetitions: usize,
    ) -> engine::Result<Option<Profile>> {
        self.times_of_many(sequences, tokens, repetitions)
    }

    fn tuning(&self) -> Option<Tuning> {
        Some(*self.layout.tuning())
    }

    fn retune(&mut self, tuning: Tuning) -> engine::Result<()> {
        Ok(self.cut(tuning)?)
    }

    fn generate(
        &mut self,
        prompt: &[u32],
        sampler: &mut Sampler,
        limit: usize,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> engine::Result<usize> {
        if Chooser::of(sampler.options(), self.vocab_size()) == Chooser::Host {
            return engine::generate_on_host(self, prompt, sampler, limit, on_token);
        }
        prompt.iter().for_each(|&token| sampler.accept(token));
        let logits = self.prefill(prompt)?;
        if limit == 0 {
            return Ok(0);
        }
        let first = sampler.sample(engine::meaningful(logits)?);
        sampler.accept(first);
        if on_token(first).is_break() {
            return Ok(1);
        }
        Ok(1 + self.run_ahead(first, sampler, limit - 1, on_token)?)
    }
}
