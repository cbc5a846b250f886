//! The model and the engine that a command measures: options of several commands.

use super::cache::CacheArguments;
use super::tuning::TuningArguments;
use crate::device::DeviceChoice;
use crate::load::{EngineOptions, Model};
use anyhow::Result;
use clap::{Args, value_parser};
use std::path::PathBuf;

/// Which model, and where and how it computes.
#[derive(Args, Debug)]
pub struct EngineArguments {
    /// GGUF file; the bundled model if not given
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// Where to compute: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value_t)]
    pub device: DeviceChoice,
    #[command(flatten)]
    pub cache: CacheArguments,
    #[command(flatten)]
    tuning: TuningArguments,
    /// Threads of the CPU engine [default: one per core]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl EngineArguments {
    /// Opens the model.
    ///
    /// # Errors
    /// A file that is not there or is no model.
    pub fn open(&self) -> Result<Model> {
        Ok(Model::open(self.model.as_deref())?)
    }

    /// Threads of the CPU engine, where a number was asked for.
    pub fn threads(&self) -> Option<usize> {
        self.threads.map(usize::from)
    }

    /// An engine with room for `context` tokens of each of `sequences` sequences.
    ///
    /// # Errors
    /// A file of tuning that cannot be read.
    pub fn options(&self, context: usize, sequences: usize) -> Result<EngineOptions> {
        Ok(EngineOptions {
            device: self.device,
            context,
            threads: self.threads(),
            sequences,
            exact: false,
            kv: self.cache.kv_type,
            tuning: self.tuning.source()?,
        })
    }
}
