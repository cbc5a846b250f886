//! A plan's parts recorded to be replayed: steps one alone, and several in one piece.

use cuda_std::launch::PreparedLaunch;

use sparkinfer_device::decode::sample::SampleShape;

use super::backend::{Backend, Result};
use super::decode::DecodePlan;
use crate::tuning::Tuning;

/// What an engine replays.
pub(super) struct Recordings<R> {
    /// From the token to the residual stream.
    pub(super) body: R,
    /// The greedy step.
    pub(super) step: Recorded<R>,
    /// The step that ends with the device's sampler, for the settings it was last used with.
    pub(super) sampled: Option<(SampleShape, Recorded<R>)>,
    /// From a stream that a prompt left to logits.
    pub(super) head: R,
}

impl<R> Recordings<R> {
    /// Records the parts of `plan`.
    ///
    /// # Errors
    /// The backend's.
    pub(super) fn new<B: Backend<Recording = R>>(backend: &B, plan: &DecodePlan, tuning: &Tuning) -> Result<Self> {
        let greedy = [&plan.body, &plan.head, &plan.advance].map(|part| part.launches());
        Ok(Self {
            body: backend.record(&plan.body.launches())?,
            step: Recorded::new(backend, &greedy.concat(), tuning.graph_steps as usize)?,
            sampled: None,
            head: backend.record(&[plan.ready.launches(), plan.head.launches()].concat())?,
        })
    }
}

/// A step that feeds the next one, recorded. Replaying several in one piece saves the pauses between replays.
pub(super) struct Recorded<R> {
    one: R,
    several: Option<R>,
    steps: usize,
}

impl<R> Recorded<R> {
    /// Records the launches of a step, and `steps` of them in one piece.
    ///
    /// # Errors
    /// The backend's.
    pub(super) fn new<B: Backend<Recording = R>>(backend: &B, step: &[PreparedLaunch], steps: usize) -> Result<Self> {
        let several = (steps > 1).then(|| backend.record(&vec![step; steps].concat()));
        Ok(Self {
            one: backend.record(step)?,
            several: several.transpose()?,
            steps,
        })
    }

    /// One step.
    pub(super) fn one(&self) -> &R {
        &self.one
    }

    /// Enqueues the piece of several steps if `most` allows it, else one step; returns how many.
    ///
    /// # Errors
    /// The backend's.
    pub(super) fn replay<B: Backend<Recording = R>>(&self, backend: &B, most: usize) -> Result<usize> {
        match &self.several {
            Some(several) if most >= self.steps => backend.replay(several).map(|()| self.steps),
            _ => backend.replay(&self.one).map(|()| 1),
        }
    }
}
