//! How close the quantised matrix × vector kernels come to the memory's speed.
//!
//! For quantised rows of 2,048 columns: the tensor-core form, for Q4_K and Q6_K the dp4a form too, and a plain streaming read of the same
//! buffer, interleaved in one process over a sweep of grids; medians and spreads, as a table and as JSON. Before anything
//! is timed the products are compared with f64. With `--chain` also a sequence of dependent launches as decode has them,
//! as a graph with and without programmatic dependent launch.

mod chain;
mod measure;
mod report;
mod workload;

use anyhow::{Result, bail};
use clap::Parser;
use serde_json::{Value, json};
use sparkinfer::cuda::Gpu;
use std::path::PathBuf;
use workload::{FORMATS, Workload};

/// Measures quantised matrix × vector kernels beside a streaming read.
#[derive(Parser)]
struct Options {
    /// Rows of the matrix, a multiple of 4096
    #[arg(long, default_value_t = 1 << 20)]
    rows: usize,
    /// Measurements of each setting
    #[arg(long, default_value_t = 9)]
    repeats: usize,
    /// Also time chains of dependent launches
    #[arg(long)]
    chain: bool,
    /// Write the figures as JSON to this file
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if options.rows == 0 || !options.rows.is_multiple_of(workload::DISTINCT_ROWS) {
        bail!(
            "--rows {}: it takes multiples of {}",
            options.rows,
            workload::DISTINCT_ROWS
        );
    }
    let gpu = Gpu::open(None)?;
    let mut results = Vec::new();
    for format in FORMATS {
        results.push(one_format(&gpu, &options, format)?);
    }
    let device = gpu.context().device();
    let all = json!({
        "gpu": device.name,
        "driver": sparkinfer::cuda::driver_version()?.to_string(),
        "multiprocessors": device.multiprocessors,
        "rows": options.rows,
        "columns": workload::COLUMNS,
        "repeats": options.repeats,
        "formats": results,
    });
    if let Some(path) = &options.out {
        std::fs::write(path, serde_json::to_string_pretty(&all)?)?;
    }
    Ok(())
}

fn one_format(gpu: &Gpu, options: &Options, format: &'static workload::Format) -> Result<Value> {
    let work = Workload::new(gpu, format, options.rows)?;
    let errors = work.check(gpu)?;
    let measured = measure::sweep(gpu, &work, options.repeats)?;
    report::print(format.name, &errors, &measured);
    let mut result = report::json(format.name, &errors, &measured);
    if options.chain {
        let chains = chain::measure(gpu, &work, options.repeats)?;
        report::print_chains(&chains);
        result["chains"] = report::chains_json(&chains);
    }
    Ok(result)
}
