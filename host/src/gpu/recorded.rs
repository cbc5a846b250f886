//! Steps recorded to be replayed: one alone, and several in one piece.

use cuda_std::launch::PreparedLaunch;

use super::backend::{Backend, Result};

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
