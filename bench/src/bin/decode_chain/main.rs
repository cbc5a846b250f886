//! What a decode step costs on the GPU, whole and launch by launch.
//!
//! Builds a mixture-of-experts model of random, well-scaled weights in device memory (by default the shapes and types of
//! Qwen3-30B-A3B Q4_K_M), captures a step (embedding, layers, head, next token) as a graph, and times it at several
//! depths with and without programmatic dependent launch; then graphs of one kind of launch alone, and of a layer's
//! first, first two … launches. With `--sweep` also attention shapes.

mod measure;
mod model;
mod report;
mod timeline;
mod tune;

use anyhow::Result;
use clap::Parser;
use model::Model;
use serde_json::json;
use sparkinfer::cuda::Gpu;
use sparkinfer_device::decode::kv::KvFormat;
use std::path::PathBuf;

/// Times decode steps of a random model.
#[derive(Parser, Clone)]
pub struct Options {
    /// Layers
    #[arg(long, default_value_t = 48)]
    layers: usize,
    /// Tokens already in the cache
    #[arg(long, value_delimiter = ',', default_value = "0,512,4096,16384,32768")]
    depth: Vec<u32>,
    /// Blocks of the head for each multiprocessor
    #[arg(long, default_value_t = 4)]
    head_blocks: u32,
    /// Blocks of attention a key head; 0: as many as fill the GPU
    #[arg(long, default_value_t = 0)]
    splits: u32,
    /// Warps of a block of attention
    #[arg(long, default_value_t = 8)]
    warps: u32,
    /// Chunks of 16 tokens that a split of attention takes at least
    #[arg(long, default_value_t = 8)]
    least: u32,
    /// Splits of a key head are a cluster, if they are eight at most
    #[arg(long)]
    clusters: bool,
    /// Clusters that the splits of a key head are, each of eight at most; the output projection merges their parts. 0 or 1: see
    /// `--clusters`
    #[arg(long, default_value_t = 0)]
    parts: u32,
    /// Type of the cache: f16, bf16 or q8_0
    #[arg(long, default_value = "f16", value_parser = kv_format)]
    kv_type: KvFormat,
    /// Measurements of each setting
    #[arg(long, default_value_t = 7)]
    repeats: usize,
    /// Steps in a measurement
    #[arg(long, default_value_t = 20)]
    steps: usize,
    /// Also time other shapes of attention
    #[arg(long)]
    sweep: bool,
    /// Time whole steps only, with attention in each of these shapes: `32` blocks a key head, `1x8` one cluster of eight, `3x8`
    /// three of them
    #[arg(long, value_delimiter = ',', value_parser = shape)]
    shapes: Vec<[u32; 2]>,
    /// Kernels in PTX to use instead of the program's own, made for this GPU: for trials of single directives
    #[arg(long)]
    ptx: Option<PathBuf>,
    /// Also show when blocks came where in the last layer of the last step; with --shapes, and built with the feature `timeline`
    #[arg(long, requires = "shapes")]
    timeline: bool,
    /// Percent of a multiprocessor's cache that shared memory gets; without it as the driver sees fit
    #[arg(long)]
    shared_percent: Option<u32>,
    /// Only whole steps, no single launches
    #[arg(long)]
    steps_only: bool,
    /// Write the figures as JSON to this file
    #[arg(long)]
    out: Option<PathBuf>,
}

/// The format of that name.
fn kv_format(name: &str) -> Result<KvFormat, String> {
    let found = KvFormat::ALL.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| "expected f16, bf16 or q8_0".to_owned())
}

/// Clusters, 0 for none, and blocks of each.
fn shape(name: &str) -> Result<[u32; 2], String> {
    let number = |digits: &str| digits.parse().map_err(|error| format!("{digits:?}: {error}"));
    match name.split_once('x') {
        Some((parts, splits)) => Ok([number(parts)?, number(splits)?]),
        None => Ok([0, number(name)?]),
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let gpu = Gpu::open_with(None, options.ptx.as_deref())?;
    if let Some(percent) = options.shared_percent {
        gpu.module().prefer_shared(percent)?;
    }
    let deepest = options.depth.iter().copied().max().unwrap_or(0);
    let mut model = Model::new(
        &gpu,
        options.layers,
        deepest + 64 + options.steps as u32,
        options.kv_type,
    )?;
    println!(
        "{}: {} layers, {:.3} GB of weights a token",
        gpu.context().device().name,
        options.layers,
        1e-9 * model.step_bytes() as f64
    );
    let (mut steps, mut stages) = (Vec::new(), Vec::new());
    if options.shapes.is_empty() {
        steps = measure::depths(&gpu, &mut model, &options)?;
        report::depths(&steps);
    }
    if options.shapes.is_empty() && !options.steps_only {
        stages = measure::stages(&gpu, &mut model, &options)?;
        report::stages(&stages, options.layers);
    }
    let mut tuned = Vec::new();
    if options.sweep {
        tuned.extend(tune::attention(&gpu, &mut model, &options)?);
    }
    tuned.extend(tune::shapes(&gpu, &mut model, &options)?);
    report::settings(&tuned);
    if let Some(path) = &options.out {
        let all = json!({
            "gpu": gpu.context().device().name,
            "driver": sparkinfer::cuda::driver_version()?.to_string(),
            "layers": options.layers,
            "weight_bytes_per_token": model.step_bytes(),
            "depths": report::settings_json(&steps),
            "stages": report::settings_json(&stages),
            "tuning": report::settings_json(&tuned),
        });
        std::fs::write(path, serde_json::to_string_pretty(&all)?)?;
    }
    Ok(())
}
