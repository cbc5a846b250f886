//! A plan's parts recorded to be replayed: steps one alone, and several in one piece.

use cuda_std::launch::PreparedLaunch;

use sparkinfer_device::decode::sample::SampleShape;

use super::backend::{Backend, Result};
use super::decode::{ByDepth, DecodePlan, Plans};
use crate::tuning::Tuning;

/// What an engine replays.
pub(super) struct Recordings<R> {
    /// The steps of each plan.
    pub(super) steps: ByDepth<Steps<R>>,
    /// From a stream that a prompt left to logits.
    pub(super) head: R,
}

/// A plan's steps.
pub(super) struct Steps<R> {
    /// From the token to the residual stream.
    pub(super) body: R,
    /// The greedy step.
    pub(super) step: Recorded<R>,
    /// The step that ends with the device's sampler, for the settings it was last used with.
    pub(super) sampled: Option<(SampleShape, Recorded<R>)>,
}

impl<R> Steps<R> {
    fn new<B: Backend<Recording = R>>(backend: &B, plan: &DecodePlan, tuning: &Tuning) -> Result<Self> {
        let greedy = [&plan.body, &plan.head, &plan.advance].map(|part| part.launches());
        Ok(Self {
            body: backend.record(&plan.body.launches())?,
            step: Recorded::new(backend, &greedy.concat(), tuning.graph_steps as usize)?,
            sampled: None,
        })
    }
}

impl<R> Recordings<R> {
    /// Records the parts of `plans`.
    ///
    /// # Errors
    /// The backend's.
    pub(super) fn new<B: Backend<Recording = R>>(backend: &B, plans: &Plans, tuning: &Tuning) -> Result<Self> {
        let full = &plans.full;
        Ok(Self {
            steps: plans.map(|plan| Steps::new(backend, plan, tuning))?,
            head: backend.record(&[full.ready.launches(), full.head.launches()].concat())?,
        })
    }

    /// Records the step that ends with the device's sampler set to `shape`, if that is not the recorded one; `ended` are the
    /// launches of such a step of a plan.
    ///
    /// # Errors
    /// The backend's.
    pub(super) fn record_sampled<B: Backend<Recording = R>>(
        &mut self,
        backend: &B,
        plans: &Plans,
        (shape, steps): (SampleShape, usize),
        ended: impl Fn(&DecodePlan) -> Result<Vec<PreparedLaunch>>,
    ) -> Result<()> {
        for (recorded, plan) in self.steps.iter_mut().zip(plans.iter()) {
            if recorded.sampled.as_ref().is_some_and(|(last, _)| *last == shape) {
                continue;
            }
            recorded.sampled = None;
            recorded.sampled = Some((shape, Recorded::new(backend, &ended(plan)?, steps)?));
        }
        Ok(())
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
