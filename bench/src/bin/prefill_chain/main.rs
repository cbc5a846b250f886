//! What a prompt costs on the GPU, whole and launch by launch.
//!
//! Builds a mixture-of-experts model of random, well-scaled weights in device memory (the shapes and types of
//! Qwen3-30B-A3B Q4_K_M), runs prompts through it in chunks as the engine does, without the head, and then the launches
//! of each kind alone.

mod measure;
#[allow(dead_code, reason = "the rest of it serves decode_chain")]
#[path = "../decode_chain/model.rs"]
mod model;
mod prompt;

use anyhow::Result;
use clap::Parser;
use model::Model;
use prompt::Prompt;
use serde_json::json;
use sparkinfer::cuda::Gpu;
use sparkinfer_device::decode::kv::KvFormat;
use std::path::PathBuf;

/// Times prompts of a random model.
#[derive(Parser, Clone)]
pub struct Options {
    /// Layers
    #[arg(long, default_value_t = 48)]
    layers: usize,
    /// Lengths of the prompts
    #[arg(long, value_delimiter = ',', default_value = "512,2048")]
    tokens: Vec<u32>,
    /// Tokens of a chunk
    #[arg(long, default_value_t = 512)]
    chunk: u32,
    /// Measurements of each
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Write the figures as JSON to this file
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let gpu = Gpu::open(None)?;
    let longest = options.tokens.iter().copied().max().unwrap_or(1);
    let model = Model::new(&gpu, options.layers, longest + 64, KvFormat::F16)?;
    let prompt = Prompt::new(&gpu, &model, options.chunk)?;
    println!("{}: {} layers", gpu.context().device().name, options.layers);
    let mut figures = Vec::new();
    for &tokens in &options.tokens {
        let rows = measure::prompt(&gpu, &prompt, tokens, options.repeats)?;
        measure::print(&rows, tokens, options.layers);
        figures.push(json!({ "tokens": tokens, "launches": measure::json(&rows) }));
    }
    if let Some(path) = &options.out {
        let all = json!({
            "gpu": gpu.context().device().name,
            "driver": sparkinfer::cuda::driver_version()?.to_string(),
            "layers": options.layers,
            "chunk": options.chunk,
            "prompts": figures,
        });
        std::fs::write(path, serde_json::to_string_pretty(&all)?)?;
    }
    Ok(())
}
