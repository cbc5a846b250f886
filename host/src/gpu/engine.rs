//! The engine: one sequence on one device, its steps recorded once and replayed.

use std::ops::ControlFlow;

use sparkinfer_device::decode::StepState;
use sparkinfer_device::decode::state::ring_token;
use sparkinfer_device::prefill::append::Chunk;
use sparkinfer_gguf::Gguf;

use super::backend::{Backend, DeviceError, Memory};
use super::buffers::{Buffers, RING_LENGTH, pages_for};
use super::decode::DecodePlan;
use super::observe;
use super::pages::{PagePool, Sequence};
use super::path::{Arithmetic, Layout};
use super::prefill::Prompt;
use crate::engine::{self, Description, Engine, EngineError, check_tokens};
use crate::model::ModelSpec;
use crate::profile::Profile;
use crate::sample::Sampler;

/// Steps that run ahead of the tokens the host has seen: what a stop costs at most.
const STEPS_AHEAD: usize = 4;
/// Tokens from which on a prompt is worth a chunk: fewer are faster as decode steps.
const LEAST_CHUNK: usize = 4;
/// Polls of the ring between two checks that the device is still well.
const POLLS_PER_CHECK: usize = 1 << 20;

/// A model on a device.
pub struct GpuEngine<B: Backend> {
    backend: B,
    description: Description,
    plan: DecodePlan,
    body: B::Recording,
    step: B::Recording,
    head: B::Recording,
    prompt: Option<Prompt>,
    buffers: Buffers,
    _weights: Box<dyn Memory>,
    pool: PagePool,
    sequence: Sequence,
    uploaded_pages: usize,
    /// Tokens emitted on the device so far: the step number of the next one.
    emitted: u32,
    logits: Vec<f32>,
    context: usize,
}

/// What a model needs on a device, known before anything is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of the key/value cache.
    pub cache: u64,
    /// Bytes of all other buffers.
    pub scratch: u64,
}

impl Needs {
    /// All bytes.
    pub fn total(&self) -> u64 {
        self.weights + self.cache + self.scratch
    }
}

/// What the model of `spec` needs on a device of `multiprocessors`, with room for `context` tokens.
///
/// # Errors
/// A model that the GPU's kernels do not take, saying what of it.
pub fn needs(spec: &ModelSpec, context: usize, multiprocessors: u32) -> Result<Needs, DeviceError> {
    Ok(Layout::new(spec, context, multiprocessors, Arithmetic::Practical)?.needs())
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
        Self::load_with(backend, gguf, spec, context, Arithmetic::Practical, progress)
    }

    /// As [`GpuEngine::load`], in the arithmetic asked for.
    ///
    /// # Errors
    /// As [`GpuEngine::load`].
    pub fn load_with(
        backend: B,
        gguf: &Gguf,
        spec: &ModelSpec,
        context: usize,
        arithmetic: Arithmetic,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, DeviceError> {
        let multiprocessors = backend.multiprocessors();
        let layout = Layout::new(spec, context, multiprocessors, arithmetic)?;
        let needs = layout.needs();
        check_room(&backend, &needs, context, spec)?;
        let weights = layout
            .map
            .upload(&backend, gguf, &mut |bytes| progress(bytes, needs.weights))?;
        let buffers = Buffers::allocate(&backend, &layout.sizes)?;
        let plan = layout.plan(spec, weights.address(), &buffers, multiprocessors)?;
        let body = backend.record(&plan.body.launches())?;
        let whole = [&plan.body, &plan.head, &plan.advance]
            .map(|part| part.launches())
            .concat();
        let step = backend.record(&whole)?;
        let head = backend.record(&plan.head.launches())?;
        let prompt = layout.prompt(&backend, spec, weights.address(), &buffers)?;
        Ok(Self {
            description: Description {
                model: spec.title(),
                device: backend.name() + layout.kind(),
                weight_bytes: needs.weights,
                kv_bytes: needs.cache,
            },
            backend,
            plan,
            body,
            step,
            head,
            prompt,
            buffers,
            _weights: weights,
            pool: PagePool::new(layout.sizes.pages),
            sequence: Sequence::new(),
            uploaded_pages: 0,
            emitted: 0,
            logits: vec![0.0; spec.vocab_size],
            context,
        })
    }

    /// The launches of a step.
    pub fn plan(&self) -> &DecodePlan {
        &self.plan
    }

    /// What prompts go through; none where they go token by token.
    pub fn prompt(&mut self) -> Option<&mut Prompt> {
        self.prompt.as_mut()
    }

    /// The device.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Makes room for `tokens` tokens in all and tells the device its pages.
    fn reserve(&mut self, tokens: usize) -> Result<(), DeviceError> {
        self.sequence
            .reserve(&mut self.pool, tokens)
            .map_err(DeviceError::new)?;
        let pages = self.sequence.pages();
        if pages.len() > self.uploaded_pages {
            self.backend
                .write(self.buffers.step.table.as_raw(), bytemuck::cast_slice(pages))?;
        }
        self.uploaded_pages = pages.len();
        Ok(())
    }

    fn set_state(&self, token: u32) -> Result<(), DeviceError> {
        let position = self.sequence.len() as u32;
        let state = StepState {
            token,
            position,
            step: self.emitted,
            ..StepState::default()
        };
        self.backend
            .write(self.buffers.step.state.as_raw(), bytemuck::bytes_of(&state))
    }

    /// Runs a step for `token`, with logits or without.
    fn step(&mut self, token: u32, logits: bool) -> Result<(), DeviceError> {
        self.set_state(token)?;
        if logits {
            self.backend.replay(&self.step)?;
            self.emitted = self.emitted.wrapping_add(1);
        } else {
            self.backend.replay(&self.body)?;
        }
        self.sequence.advance(1);
        Ok(())
    }

    /// Makes the device ready for the step of `token` behind the cached ones, without running it.
    pub(super) fn prepare_step(&mut self, token: u32) -> Result<(), DeviceError> {
        self.reserve(self.sequence.len() + 1)?;
        self.set_state(token)
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
        for (i, piece) in tokens.chunks(size).enumerate() {
            let first = i * size;
            if piece.len() < LEAST_CHUNK {
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
                self.backend.run(&[prompt.take(i, self.buffers.step.x)?])?;
            }
            self.backend.replay(&self.head)?;
            each(first + i, self.read_logits()?)?;
        }
        Ok(())
    }

    fn read_logits(&mut self) -> Result<&[f32], DeviceError> {
        self.backend
            .download(self.buffers.logits.as_raw(), bytemuck::cast_slice_mut(&mut self.logits))?;
        Ok(&self.logits)
    }

    /// The token that step `step` emitted, waiting for it.
    fn wait_for(&self, step: u32) -> Result<u32, DeviceError> {
        let slot = (step % RING_LENGTH) as usize;
        for poll in 1usize.. {
            if let Some(token) = ring_token(self.buffers.ring_memory().load(slot), step) {
                return Ok(token);
            }
            std::hint::spin_loop();
            if poll.is_multiple_of(POLLS_PER_CHECK) {
                self.backend.check()?;
            }
        }
        Err(DeviceError("the device emitted no token".into()))
    }

    /// Greedy decoding from `token` on: the device feeds itself, the host reads behind it.
    fn run_greedy(
        &mut self,
        token: u32,
        limit: usize,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<usize, DeviceError> {
        self.reserve(self.sequence.len() + limit)?;
        self.set_state(token)?;
        let first = self.emitted;
        let (mut launched, mut seen) = (0, 0);
        let mut stopped = false;
        while seen < limit && !stopped {
            while launched < limit.min(seen + STEPS_AHEAD) {
                self.backend.replay(&self.step)?;
                self.emitted = self.emitted.wrapping_add(1);
                launched += 1;
            }
            let next = self.wait_for(first.wrapping_add(seen as u32))?;
            seen += 1;
            stopped = on_token(next).is_break();
        }
        self.backend.synchronize()?;
        // Of the steps that ran, only those whose result was taken count.
        self.sequence.advance(seen);
        Ok(seen)
    }
}

/// What is called with the number of a token and the logits behind it.
type Each<'a> = &'a mut dyn FnMut(usize, &[f32]) -> engine::Result<()>;

fn check_room<B: Backend>(backend: &B, needs: &Needs, context: usize, spec: &ModelSpec) -> Result<(), DeviceError> {
    let (free, total) = backend.memory()?;
    if needs.total() <= free {
        return Ok(());
    }
    let per_token = needs.cache / (pages_for(context) * super::pages::PAGE_TOKENS).max(1) as u64;
    let room = free.saturating_sub(needs.weights + needs.scratch) / per_token.max(1);
    let advice = if room >= super::pages::PAGE_TOKENS as u64 {
        format!("--ctx {} would fit", room.min(spec.context_length as u64))
    } else {
        "the weights alone do not fit: use a smaller quantisation, another GPU, or --device cpu".to_owned()
    };
    Err(DeviceError(format!(
        "{}: {} MiB are needed ({} weights, {} cache for {context} tokens), {} of {} MiB are free; {advice}",
        backend.name(),
        needs.total() >> 20,
        needs.weights >> 20,
        needs.cache >> 20,
        free >> 20,
        total >> 20,
    )))
}

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
        self.uploaded_pages = self.uploaded_pages.min(self.sequence.pages().len());
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

    fn generate(
        &mut self,
        prompt: &[u32],
        sampler: &mut Sampler,
        limit: usize,
        on_token: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> engine::Result<usize> {
        if !sampler.options().is_argmax() {
            return engine::generate_on_host(self, prompt, sampler, limit, on_token);
        }
        let logits = self.prefill(prompt)?;
        if limit == 0 {
            return Ok(0);
        }
        let first = sampler.sample(engine::meaningful(logits)?);
        if on_token(first).is_break() {
            return Ok(1);
        }
        let room = self.context - self.position();
        Ok(1 + self.run_greedy(first, (limit - 1).min(room), on_token)?)
    }
}
