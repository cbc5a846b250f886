//! What the stages of a step cost: data that an engine measures and people read.

use serde::Serialize;

/// The times of a step and of its stages. Seconds are of one step; each comes from many repetitions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Profile {
    /// The whole step but for the choice of the token.
    pub whole_seconds: f64,
    /// Launches of the whole step.
    pub launches: usize,
    /// The stages, in the order of their first launch.
    pub stages: Vec<StageProfile>,
}

/// All launches of a step that bear the same name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageProfile {
    /// The name.
    pub name: String,
    /// How many launches.
    pub launches: usize,
    /// Bytes of weights that they must read.
    pub weight_bytes: u64,
    /// Seconds of these launches alone, one after another.
    pub alone_seconds: f64,
    /// Seconds by which the step is shorter without them: less than alone where they overlap with their neighbours.
    pub share_seconds: f64,
}

impl Profile {
    /// The sum of what the stages take alone: what the step would take without any overlap.
    pub fn sum_alone(&self) -> f64 {
        self.stages.iter().map(|stage| stage.alone_seconds).sum()
    }

    /// The sum of the stages' shares.
    pub fn sum_of_shares(&self) -> f64 {
        self.stages.iter().map(|stage| stage.share_seconds).sum()
    }
}
