//! Opening a model: its file, its description, its tokenizer, and an engine for it.

use crate::bundled;
use crate::chat::{ChatError, ChatTemplate, Message, RenderOptions};
use crate::cpu::{CpuEngine, CpuOptions, OpenError};
use crate::cuda;
use crate::device::DeviceChoice;
use crate::engine::Engine;
use crate::gpu::cuda::CudaDevice;
use crate::gpu::{Arithmetic, DeviceError, GpuEngine, GpuOptions};
use crate::model::{KvType, ModelSpec};
use crate::tokenizer::{EncodeOptions, Tokenizer, TokenizerError};
use crate::tuning::{Known, Tuning, TuningSource};
use sparkinfer_gguf::Gguf;
use std::path::Path;

/// Why a model cannot be opened or run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Neither a file nor a bundled model.
    #[error("no model: this binary was built without the bundled one, so give a GGUF file with --model")]
    NoModel,
    /// The file, or the model in it.
    #[error(transparent)]
    Gguf(#[from] sparkinfer_gguf::Error),
    /// The vocabulary.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// The CPU engine could not be set up.
    #[error(transparent)]
    Cpu(#[from] OpenError),
    /// The device that was asked for.
    #[error("{device} cannot be used: {reason}; ask for cpu instead")]
    Device {
        /// The device.
        device: DeviceChoice,
        /// Why not.
        reason: String,
    },
    /// The emulated GPU.
    #[error("the emulator cannot take the model: {0}")]
    Emulator(String),
}

/// Opens the file at `path`, or the bundled model.
///
/// # Errors
/// No bundled model in this build, or whatever is wrong with the file.
pub fn gguf(path: Option<&Path>) -> Result<Gguf, LoadError> {
    match path {
        Some(path) => Ok(Gguf::open(path)?),
        None => Ok(Gguf::from_bytes(bundled::model().ok_or(LoadError::NoModel)?)?),
    }
}

/// How to compute.
#[derive(Debug, Clone, Copy)]
pub struct EngineOptions {
    /// Where.
    pub device: DeviceChoice,
    /// Room for tokens, in each sequence.
    pub context: usize,
    /// Sequences that there is room for on a GPU, which takes all of them in one step where it can.
    pub sequences: usize,
    /// Threads of the CPU engine; one per core if not given.
    pub threads: Option<usize>,
    /// Whether to compute in f32 with dequantised weights: slow, the reference.
    pub exact: bool,
    /// Type of the key/value cache; if not given f16, or f32 where the CPU computes in f32.
    pub kv: Option<KvType>,
    /// How a GPU's launches are cut.
    pub tuning: TuningSource,
}

impl EngineOptions {
    /// What they mean for a GPU whose launches are cut as `tuning` says.
    pub fn gpu(&self, tuning: Tuning) -> GpuOptions {
        GpuOptions {
            context: self.context,
            sequences: self.sequences,
            kv: self.kv.unwrap_or_default(),
            arithmetic: if self.exact {
                Arithmetic::Reference
            } else {
                Arithmetic::Practical
            },
            tuning,
        }
    }

    /// What they mean for the CPU.
    pub fn cpu(&self) -> CpuOptions {
        let defaults = if self.exact {
            CpuOptions::reference(self.context)
        } else {
            CpuOptions::practical(self.context)
        };
        CpuOptions {
            threads: self.threads.unwrap_or(0),
            kv: self.kv.unwrap_or(defaults.kv),
            ..defaults
        }
    }
}

/// A model that is ready to get an engine.
pub struct Model {
    /// The file, mapped.
    pub gguf: Gguf,
    /// What it describes.
    pub spec: ModelSpec,
    /// Its vocabulary.
    pub tokenizer: Tokenizer,
}

impl Model {
    /// Opens the file at `path`, or the bundled model. Weights are not read yet.
    ///
    /// # Errors
    /// As [`gguf`]; a model or a vocabulary that is not supported or not sound.
    pub fn open(path: Option<&Path>) -> Result<Self, LoadError> {
        let gguf = gguf(path)?;
        let spec = ModelSpec::from_gguf(&gguf)?;
        let tokenizer = Tokenizer::from_gguf(&gguf)?;
        tracing::info!(
            file = gguf.label(),
            spec.architecture,
            layers = spec.layers.len(),
            "model opened"
        );
        if let [first, rest @ ..] = spec.unused_tensors(&gguf).as_slice() {
            tracing::warn!(
                file = gguf.label(),
                "{} and {} more tensors are not used: they are no part of {} layers of {}",
                first,
                rest.len(),
                spec.layers.len(),
                spec.architecture,
            );
        }
        Ok(Self { gguf, spec, tokenizer })
    }

    /// The ids of a raw prompt: with what the model wants at its beginning, special tokens read as such.
    ///
    /// # Errors
    /// Text that the vocabulary cannot express.
    pub fn prompt_ids(&self, prompt: &str) -> Result<Vec<u32>, LoadError> {
        Ok(self.tokenizer.encode(prompt, EncodeOptions::PROMPT)?)
    }

    /// The ids of a text to be measured: with what the model wants at its beginning, special tokens read as text.
    ///
    /// # Errors
    /// Text that the vocabulary cannot express.
    pub fn text_ids(&self, text: &str) -> Result<Vec<u32>, LoadError> {
        let options = EncodeOptions {
            add_special: true,
            parse_special: false,
        };
        Ok(self.tokenizer.encode(text, options)?)
    }

    /// The ids of a conversation of an optional system message and a user's message, up to where the answer begins.
    ///
    /// # Errors
    /// A template that is broken or refuses the conversation.
    pub fn chat_ids(&self, system: Option<&str>, user: &str) -> Result<Vec<u32>, LoadError> {
        let template = ChatTemplate::from_gguf(&self.gguf, &self.tokenizer)?;
        if template.is_fallback() {
            tracing::warn!("the model has no chat template: using ChatML");
        }
        let system = system.map(|text| Message::new("system", text));
        let messages: Vec<Message> = system.into_iter().chain([Message::new("user", user)]).collect();
        let text = template.render(&messages, &RenderOptions::default())?;
        Ok(self.tokenizer.encode_chat(&text)?)
    }

    /// An engine with an empty sequence, on the device that `options` choose. `progress` is told the bytes of weights
    /// brought to a GPU so far, and their sum.
    ///
    /// # Errors
    /// A device that cannot be used, or no room for the context.
    pub fn engine(
        &self,
        options: &EngineOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Engine + '_>, LoadError> {
        match options.device {
            DeviceChoice::Cpu => Ok(Box::new(self.cpu_engine(options)?)),
            // Every machine has the CPU's reference arithmetic: only a GPU that is asked for is used.
            DeviceChoice::Auto if options.exact => Ok(Box::new(self.cpu_engine(options)?)),
            DeviceChoice::Cuda(number) => {
                let engine = self.gpu_engine(Some(number), options, progress);
                let refused = |reason: DeviceError| LoadError::Device {
                    device: options.device,
                    reason: reason.0,
                };
                Ok(Box::new(engine.map_err(refused)?))
            }
            DeviceChoice::Auto => self.automatic(options, progress),
        }
    }

    /// The first usable GPU's engine, else the CPU's. A GPU that is there but does not take the model is worth a
    /// warning, a machine without one is not.
    fn automatic(
        &self,
        options: &EngineOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Box<dyn Engine + '_>, LoadError> {
        match cuda::select(None) {
            Err(reason) => tracing::info!(%reason, "using the CPU"),
            Ok(gpu) => match self.gpu_engine(None, options, progress) {
                Ok(engine) => return Ok(Box::new(engine)),
                Err(reason) => tracing::warn!(%reason, gpu = gpu.name, "using the CPU, not the GPU"),
            },
        }
        Ok(Box::new(self.cpu_engine(options)?))
    }

    /// The engine of GPU number `number`, or of the first usable one.
    ///
    /// # Errors
    /// No usable GPU, a model that it does not take, or too little memory.
    pub fn gpu_engine(
        &self,
        number: Option<u32>,
        options: &EngineOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<GpuEngine<CudaDevice>, DeviceError> {
        let device = CudaDevice::open(number)?;
        let Known { tuning, origin } = Known::of(
            options.tuning,
            device.gpu().context().device(),
            &self.spec,
            options.kv.unwrap_or_default(),
        );
        tracing::info!(%origin, ?tuning, "launch shapes");
        GpuEngine::load_with(device, &self.gguf, &self.spec, &options.gpu(tuning), progress)
    }

    fn cpu_engine(&self, options: &EngineOptions) -> Result<CpuEngine<'_>, OpenError> {
        CpuEngine::new(&self.gguf, &self.spec, &options.cpu())
    }
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests {
    use super::*;

    const OPTIONS: EngineOptions = EngineOptions {
        device: DeviceChoice::Auto,
        context: 16,
        sequences: 1,
        threads: Some(1),
        exact: false,
        kv: None,
        tuning: TuningSource::Known,
    };

    #[test]
    fn the_bundled_model_gets_an_engine() {
        let model = Model::open(None).unwrap();
        let engine = model.engine(&OPTIONS, &mut |_, _| {}).unwrap();
        assert_eq!((engine.context(), engine.vocab_size()), (16, 4096));
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let model = Model::open(None).unwrap();
        let options = EngineOptions {
            device: DeviceChoice::Cuda(7),
            ..OPTIONS
        };
        let error = model
            .engine(&options, &mut |_, _| {})
            .err()
            .map(|error| error.to_string())
            .unwrap();
        assert!(
            error.starts_with("cuda:7 cannot be used: ") && error.ends_with("ask for cpu instead"),
            "{error}"
        );
    }

    #[test]
    fn a_conversation_becomes_a_prompt() {
        let model = Model::open(None).unwrap();
        let ids = model.chat_ids(Some("Be brief."), "Hi").unwrap();
        let text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(ids, model.prompt_ids(text).unwrap());
    }
}
