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
    /// Where the residual stream lies after this launch, if the launch completes the embedding or a part of a layer.
    pub residual: Option<Residual>,
}

/// A residual stream in device memory: f32 values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residual {
    /// Address of the first value.
    pub address: u64,
    /// Number of values.
    pub length: usize,
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
            residual: None,
        });
    }

    /// Says that the launch pushed last completes the embedding or a part of a layer, and leaves the residual stream of
    /// `length` values at `address`. Every part is marked once, in the model's order: engines are compared there.
    pub fn mark_residual(&mut self, address: u64, length: usize) {
        if let Some(stage) = self.stages.last_mut() {
            stage.residual = Some(Residual { address, length });
        }
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
