//! Plans: the launches of a step as data.

use cuda_std::launch::PreparedLaunch;

/// One launch of a plan, and what it is for.
#[derive(Debug, Clone)]
pub struct Stage {
    /// What it computes; the same name in every layer.
    pub name: &'static str,
    /// The layer it belongs to; none for the embedding and what follows the last layer.
    pub layer: Option<usize>,
    /// The launch.
    pub launch: PreparedLaunch,
    /// Bytes of weights that it must read.
    pub bytes: u64,
}

/// Launches in order. Data: a device, a graph under capture and the emulator execute the same plan, whole or in part.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The launches.
    pub stages: Vec<Stage>,
}

impl Plan {
    /// Appends a launch that reads `bytes` bytes of weights.
    pub fn push(&mut self, name: &'static str, layer: Option<usize>, bytes: u64, launch: PreparedLaunch) {
        self.stages.push(Stage {
            name,
            layer,
            launch,
            bytes,
        });
    }

    /// The launches alone, as a backend takes them.
    pub fn launches(&self) -> Vec<PreparedLaunch> {
        self.stages.iter().map(|stage| stage.launch.clone()).collect()
    }

    /// Bytes of weights that all launches read.
    pub fn bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.bytes).sum()
    }
}
