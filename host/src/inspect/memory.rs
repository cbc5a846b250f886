//! What a model takes of a GPU's memory.

use std::fmt::{Display, Formatter, Result};

use serde::Serialize;

use crate::cuda;
use crate::generate::stats::bytes;
use crate::gpu::{self, GpuOptions};
use crate::model::{KvType, ModelSpec};
use crate::tuning::{Known, Tuning, TuningSource};

/// Tokens of room where nothing is asked for, if the model takes so many.
const CONTEXT: usize = 4096;
/// Multiprocessors that are assumed where there is no GPU: an H200's.
const MULTIPROCESSORS: u32 = 132;

/// The device memory that a model will take, to the byte; what the driver takes for itself is not in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuMemory {
    /// Room for tokens.
    pub context: usize,
    /// The GPU of this machine, if there is one.
    pub gpu: Option<Gpu>,
    /// Bytes of weights, as they are placed for the kernels.
    pub weight_bytes: u64,
    /// Bytes of the key/value cache.
    pub cache_bytes: u64,
    /// Bytes of all other buffers.
    pub buffer_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
    /// Tokens that the GPU's memory has room for beside the weights, at most those that the model was made for; none
    /// without a GPU.
    pub fitting_context: Option<usize>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Where the launch shapes come from that it runs this model with.
    pub launch_shapes: String,
}

impl GpuMemory {
    /// What the model of `spec` will take with room for `context` tokens (4,096 if not given) in a cache of type `kv`, on
    /// this machine's first GPU, else on one like an H200.
    ///
    /// # Errors
    /// A model or a type of cache that the GPU's kernels do not take, saying what of it.
    pub fn new(spec: &ModelSpec, context: Option<usize>, kv: KvType) -> std::result::Result<Self, gpu::DeviceError> {
        let context = context.unwrap_or(CONTEXT.min(spec.context_length));
        let device = cuda::select(None).ok();
        let multiprocessors = device.as_ref().map_or(MULTIPROCESSORS, |device| device.multiprocessors);
        let known = device
            .as_ref()
            .map(|device| Known::of(TuningSource::Known, device, spec, kv));
        let options = GpuOptions {
            kv,
            tuning: known.as_ref().map_or_else(Tuning::default, |known| known.tuning),
            ..GpuOptions::practical(context)
        };
        let needs = gpu::needs(spec, &options, multiprocessors)?;
        let gpu = device.map(|device| Gpu {
            name: device.name,
            memory_bytes: device.memory_bytes as u64,
            launch_shapes: known.map_or_else(String::new, |known| known.origin.to_string()),
        });
        let fitting = |gpu: &Gpu| needs.fitting(gpu.memory_bytes, context).min(spec.context_length);
        Ok(Self {
            context,
            fitting_context: gpu.as_ref().map(fitting),
            gpu,
            weight_bytes: needs.weights,
            cache_bytes: needs.cache,
            buffer_bytes: needs.scratch,
            total_bytes: needs.total(),
        })
    }
}

impl Display for GpuMemory {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(
            f,
            "  on a GPU with room for {} tokens {}: weights {}, key/value cache {}, buffers {}",
            self.context,
            bytes(self.total_bytes),
            bytes(self.weight_bytes),
            bytes(self.cache_bytes),
            bytes(self.buffer_bytes)
        )?;
        let (
            Some(Gpu {
                name,
                memory_bytes,
                launch_shapes,
            }),
            Some(fitting),
        ) = (&self.gpu, self.fitting_context)
        else {
            return Ok(());
        };
        let has = bytes(*memory_bytes);
        match self.total_bytes.checked_sub(*memory_bytes) {
            Some(missing) if missing > 0 => writeln!(
                f,
                "  {name} has {has}, {} too few; {fitting} tokens fit",
                bytes(missing)
            ),
            _ => writeln!(f, "  {name} has {has}; {fitting} tokens fit"),
        }?;
        writeln!(f, "  launch shapes {launch_shapes}")
    }
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests {
    use super::*;
    use crate::load::Model;

    #[test]
    fn the_parts_make_the_whole() {
        let spec = Model::open(None).unwrap().spec;
        let memory = GpuMemory::new(&spec, Some(256), KvType::F16).unwrap();
        // 4 layers, keys and values, 2 heads of 128 values of 2 bytes.
        assert_eq!(memory.cache_bytes, 256 * 4 * 2 * 2 * 128 * 2);
        assert_eq!(
            memory.total_bytes,
            memory.weight_bytes + memory.cache_bytes + memory.buffer_bytes
        );
        assert_eq!(GpuMemory::new(&spec, None, KvType::Q8_0).unwrap().context, 2048);
    }

    #[test]
    fn too_little_memory_is_said_with_what_fits() {
        let memory = GpuMemory {
            context: 4096,
            gpu: Some(Gpu {
                name: "Small GPU".into(),
                memory_bytes: 8_000_000_000,
                launch_shapes: "by rule".into(),
            }),
            weight_bytes: 7_000_000_000,
            cache_bytes: 2_000_000_000,
            buffer_bytes: 100_000_000,
            total_bytes: 9_100_000_000,
            fitting_context: Some(1792),
        };
        let text = memory.to_string();
        assert!(
            text.ends_with("Small GPU has 8.00 GB, 1.10 GB too few; 1792 tokens fit\n  launch shapes by rule\n"),
            "{text}"
        );
    }
}
