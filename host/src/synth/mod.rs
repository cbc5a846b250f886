//! Synthetic models: exact shapes, quantisation mix and metadata of a real model, random weights.
//!
//! For measurements and tests where no trained weights are needed. Weights are scaled so that activations and logits
//! stay of ordinary size at any depth; text that comes out means nothing. The same options give the same bytes on any
//! machine and with any number of threads.

mod fill;
mod metadata;
mod mix;
mod preset;
mod random;
mod tensors;
mod vocabulary;

#[cfg(test)]
mod tests;

use std::path::Path;

use rayon::prelude::*;
use sparkinfer_gguf::{Gguf, GgufWriter, TensorType};

pub use mix::Mix;
pub use preset::{Experts, Parts, Preset};
use random::Random;
use tensors::{Planned, Role, Values};
use thiserror::Error;

/// Bytes that one step of the work makes; rounded down to whole blocks.
const CHUNK_BYTES: usize = 1 << 20;
/// Most layers of a synthetic model.
const MAX_LAYERS: u32 = 512;

/// Why a synthetic model cannot be made.
#[derive(Debug, Error)]
pub enum SynthError {
    /// The vocabulary file cannot be used, or the model cannot be written.
    #[error(transparent)]
    Gguf(#[from] sparkinfer_gguf::Error),
    /// No preset of this name.
    #[error("no synthetic model is called '{name}'; there are {known}")]
    UnknownPreset {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// No mix of this name.
    #[error("no quantisation mix is called '{name}'; there are {known}")]
    UnknownMix {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A number of layers that makes no model.
    #[error("{0} layers are not possible; 1 to {MAX_LAYERS} are")]
    Layers(u32),
    /// The vocabulary has more tokens than the model has rows.
    #[error("{file}: its vocabulary has {tokens} tokens, the model only {rows} rows")]
    Vocabulary {
        /// The vocabulary's file.
        file: String,
        /// Its tokens.
        tokens: usize,
        /// Rows of the embedding.
        rows: usize,
    },
}

/// What to make.
#[derive(Clone, Copy)]
pub struct SynthOptions<'a> {
    /// Shapes and metadata.
    pub preset: &'a Preset,
    /// Tensor types.
    pub mix: Mix,
    /// Another number of layers than the preset's.
    pub layers: Option<u32>,
    /// Seed of the weights.
    pub seed: u64,
    /// A file whose tokenizer to take; without one, a byte-level vocabulary is made up.
    pub vocabulary: Option<&'a Gguf>,
}

/// A model that can be written.
pub struct Synth {
    writer: GgufWriter,
    tensors: Vec<(Planned, TensorType)>,
    seed: u64,
}

/// A piece of a tensor, made in one step.
struct Chunk {
    tensor: usize,
    offset: usize,
    bytes: usize,
}

impl Synth {
    /// Plans a model.
    ///
    /// # Errors
    /// The number of layers or the vocabulary does not fit.
    pub fn new(options: &SynthOptions<'_>) -> Result<Self, SynthError> {
        let layers = options.layers.unwrap_or(options.preset.layers);
        if !(1..=MAX_LAYERS).contains(&layers) {
            return Err(SynthError::Layers(layers));
        }
        let preset = Preset {
            layers,
            ..options.preset.clone()
        };
        let mut writer = GgufWriter::new();
        metadata::set(&mut writer, &preset, options.mix);
        match options.vocabulary {
            Some(gguf) => vocabulary::copy(&mut writer, gguf, &preset)?,
            None => vocabulary::invent(&mut writer, &preset),
        }
        let mut tensors = Vec::new();
        for planned in tensors::plan(&preset) {
            let ty = options.mix.tensor_type(&planned, &preset);
            match ty {
                TensorType::NVFP4 => tensors.extend(with_second_scale(planned)),
                _ => tensors.push((planned, ty)),
            }
        }
        for (planned, ty) in &tensors {
            writer.tensor(&planned.name, *ty, &planned.shape)?;
        }
        Ok(Self {
            writer,
            tensors,
            seed: options.seed,
        })
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// The file would be too large for any disk.
    pub fn file_bytes(&self) -> Result<u64, SynthError> {
        Ok(self.writer.layout()?.file_bytes())
    }

    /// Writes the file with all of the current rayon pool's threads. `progress` is told the bytes of each finished step.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path, progress: impl Fn(u64) + Sync) -> Result<(), SynthError> {
        let file = self.writer.layout()?.create_sized(path)?;
        self.chunks()
            .into_par_iter()
            .try_for_each_init(Vec::new, |buffer, chunk| {
                self.make(&chunk, buffer);
                file.write(chunk.tensor, chunk.offset as u64, buffer)?;
                progress(chunk.bytes as u64);
                Ok::<_, SynthError>(())
            })?;
        Ok(file.finish()?)
    }

    /// The file in memory, for small models.
    ///
    /// # Errors
    /// The file would be too large.
    pub fn to_vec(&self) -> Result<Vec<u8>, SynthError> {
        let layout = self.writer.layout()?;
        let mut file = vec![0; layout.file_bytes() as usize];
        let mut slices = layout.slices(&mut file).unwrap_or_default();
        let mut buffer = Vec::new();
        for chunk in self.chunks() {
            self.make(&chunk, &mut buffer);
            slices[chunk.tensor].1[chunk.offset..][..chunk.bytes].copy_from_slice(&buffer);
        }
        Ok(file)
    }

    /// All work, tensor by tensor.
    fn chunks(&self) -> Vec<Chunk> {
        let pieces = self.tensors.iter().enumerate().flat_map(|(tensor, (planned, ty))| {
            let blocks = planned.elements() / ty.block_len();
            let step = (CHUNK_BYTES / ty.block_bytes()).max(1);
            (0..blocks).step_by(step).map(move |block| Chunk {
                tensor,
                offset: block * ty.block_bytes(),
                bytes: step.min(blocks - block) * ty.block_bytes(),
            })
        });
        pieces.collect()
    }

    /// Makes a chunk's bytes; they depend on the seed and the chunk's place only.
    fn make(&self, chunk: &Chunk, buffer: &mut Vec<u8>) {
        let (planned, ty) = &self.tensors[chunk.tensor];
        let mut random = Random::new(&[self.seed, chunk.tensor as u64, chunk.offset as u64]);
        buffer.resize(chunk.bytes, 0);
        fill::fill(*ty, planned.values, &mut random, buffer);
    }
}

/// An NVFP4 tensor and the scales, one for each expert, that its results are multiplied by.
fn with_second_scale(planned: Planned) -> [(Planned, TensorType); 2] {
    let mean = planned.values.deviation / fill::NVFP4_DEVIATION;
    let scale = Planned {
        name: planned.name.replace(".weight", ".scale"),
        shape: vec![planned.shape.get(2).copied().unwrap_or(1)],
        role: Role::Exact,
        values: Values {
            mean,
            deviation: 0.05 * mean,
        },
        ..planned
    };
    let values = Values {
        mean: 0.0,
        deviation: fill::NVFP4_DEVIATION,
    };
    [
        (Planned { values, ..planned }, TensorType::NVFP4),
        (scale, TensorType::F32),
    ]
}
