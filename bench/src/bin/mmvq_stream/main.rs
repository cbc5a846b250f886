//! How close the quantised matrix × vector kernels come to the memory's speed.
//!
//! For rows of 2,048 columns of every type: the tensor-core form, the form that decodes on read, for Q4_K and Q6_K the
//! dp4a form too, and a plain streaming read of the same buffer, interleaved in one process over a sweep of grids; medians and spreads, as a table and as JSON. Before anything
//! is timed the products are compared with f64. With `--chain` also a sequence of dependent launches as decode has them,
//! as a graph with and without programmatic dependent launch.

mod chain;
mod measure;
mod report;
mod workload;

use anyhow::{Result, bail};
use clap::Parser;
use report::Best;
use serde_json::{Value, json};
use sparkinfer::cuda::Gpu;
use sparkinfer_gguf::types::TensorType;
use std::path::PathBuf;
use workload::Workload;

/// Measures quantised matrix × vector kernels beside a streaming read.
#[derive(Parser)]
struct Options {
    /// Rows of the matrix, a multiple of 4096
    #[arg(long, default_value_t = 1 << 20)]
    rows: usize,
    /// Measurements of each setting
    #[arg(long, default_value_t = 9)]
    repeats: usize,
    /// Only these types, such as Q4_K,Q2_K
    #[arg(long, value_delimiter = ',')]
    types: Vec<String>,
    /// Also time chains of dependent launches
    #[arg(long)]
    chain: bool,
    /// Kernels in PTX to use instead of the program's own, made for this GPU
    #[arg(long)]
    ptx: Option<PathBuf>,
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
    let gpu = Gpu::open_with(None, options.ptx.as_deref())?;
    let mut results = Vec::new();
    let mut summary = Vec::new();
    for ty in wanted(&options.types)? {
        results.push(one_type(&gpu, &options, ty, &mut summary)?);
    }
    report::print_summary(&summary);
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

/// The types of these names; all where there are none.
fn wanted(names: &[String]) -> Result<Vec<TensorType>> {
    if names.is_empty() {
        return Ok(workload::types());
    }
    let find = |name: &String| match TensorType::from_name(name) {
        Some(ty) if ty.is_supported() => Ok(ty),
        _ => bail!("--types {name}: there are no kernels of that type"),
    };
    names.iter().map(find).collect()
}

fn one_type(gpu: &Gpu, options: &Options, ty: TensorType, summary: &mut Vec<Best>) -> Result<Value> {
    let work = Workload::new(gpu, ty, options.rows)?;
    let errors = work.check(gpu)?;
    let measured = measure::sweep(gpu, &work, options.repeats)?;
    summary.extend(report::print(ty.name(), &errors, &measured));
    let mut result = report::json(ty.name(), &errors, &measured);
    if options.chain {
        let chains = chain::measure(gpu, &work, options.repeats)?;
        report::print_chains(&chains);
        result["chains"] = report::chains_json(&chains);
    }
    Ok(result)
}
