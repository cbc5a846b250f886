//! Decoding in which the device feeds itself, and the host reads behind it.

use std::ops::ControlFlow;

use sparkinfer_device::decode::state::{NO_TOKEN, ring_token};

use super::GpuEngine;
use crate::engine::{self, Engine, no_number};
use crate::gpu::backend::{Backend, DeviceError, HostVisible};
use crate::gpu::buffers::RING_LENGTH;
use crate::gpu::recorded::Recorded;
use crate::gpu::sampling::Chooser;
use crate::sample::Sampler;

/// While fewer steps than these are under way, more are enqueued: with those of one recording, what a stop costs.
const STEPS_AHEAD: usize = 4;
/// Polls of the ring between two checks that the device is still well.
const POLLS_PER_CHECK: usize = 1 << 20;

/// What is told each token, and says whether to go on.
type OnToken<'a> = &'a mut dyn FnMut(u32) -> ControlFlow<()>;

impl<B: Backend> GpuEngine<B> {
    /// Decodes from `token` on, up to `limit` tokens or as many as the cache has room for. The tokens that are chosen
    /// are those that `sampler` would choose, and it counts them.
    pub(super) fn run_ahead(
        &mut self,
        token: u32,
        sampler: &mut Sampler,
        limit: usize,
        on_token: OnToken<'_>,
    ) -> engine::Result<usize> {
        let room = self.sequence.room(&self.pool).min(self.context - self.position());
        let limit = limit.min(room);
        if limit == 0 {
            return Ok(0);
        }
        self.reserve(self.position() + limit)?;
        if let Chooser::Device(shape) = Chooser::of(sampler.options(), self.logits.len()) {
            self.record_sampled(shape)?;
            self.sampler.begin(&self.backend, sampler, self.position())?;
        }
        self.set_state(token, (sampler.step() as u32).wrapping_sub(self.emitted))?;
        let mut seen = 0;
        let ended = self.follow(sampler, limit, &mut seen, on_token);
        self.backend.synchronize()?;
        // Of the steps that ran, only those whose result was taken count.
        self.sequence.advance(seen);
        self.sequence.truncate(&mut self.pool, self.sequence.len());
        ended.map(|()| seen)
    }

    /// Enqueues steps and reads their tokens until there are `limit`, or `on_token` breaks.
    fn follow(
        &mut self,
        sampler: &mut Sampler,
        limit: usize,
        seen: &mut usize,
        on_token: OnToken<'_>,
    ) -> engine::Result<()> {
        let (first, mut launched) = (self.emitted, 0);
        while *seen < limit {
            while launched < limit && launched < *seen + STEPS_AHEAD {
                let (recorded, most) = self.recorded(sampler, self.sequence.len() + launched);
                launched += recorded.replay(&self.backend, most.min(limit - launched))?;
                self.emitted = first.wrapping_add(launched as u32);
            }
            let token = self.wait_for(first.wrapping_add(*seen as u32))?;
            if token == NO_TOKEN {
                return Err(no_number());
            }
            *seen += 1;
            sampler.chosen(token);
            if on_token(token).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The recording of the step at `position` whose steps end as `sampler` chooses, and how many steps it is for.
    fn recorded(&self, sampler: &Sampler, position: usize) -> (&Recorded<B::Recording>, usize) {
        let (steps, most) = self.recordings.steps.at(position);
        let recorded = match &steps.sampled {
            Some((_, recorded)) if !sampler.options().is_argmax() => recorded,
            _ => &steps.step,
        };
        (recorded, most)
    }

    /// The token that step `step` emitted, waiting for it.
    fn wait_for(&self, step: u32) -> Result<u32, DeviceError> {
        let slot = (step % RING_LENGTH) as usize;
        emitted(&self.backend, self.buffers.ring_memory(), slot, step)
    }
}

/// The token of step `step` in entry `slot` of a ring, waiting for it.
///
/// # Errors
/// The driver's.
pub(in crate::gpu) fn emitted<B: Backend>(
    backend: &B,
    ring: &dyn HostVisible,
    slot: usize,
    step: u32,
) -> Result<u32, DeviceError> {
    for poll in 1usize.. {
        if let Some(token) = ring_token(ring.load(slot), step) {
            return Ok(token);
        }
        std::hint::spin_loop();
        if poll.is_multiple_of(POLLS_PER_CHECK) {
            backend.check()?;
        }
    }
    Err(DeviceError("the device emitted no token".into()))
}
