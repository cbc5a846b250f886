//! Tables and JSON.

use crate::chain::Chain;
use crate::measure::Setting;
use serde_json::{Value, json};

/// The middle value; the mean of the two middle ones of an even number.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 {
        f64::NAN
    } else {
        (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
    }
}

/// The fastest setting of each kernel, the streaming read first.
fn best(settings: &[Setting]) -> Vec<&Setting> {
    let of = |name| {
        settings
            .iter()
            .filter(move |s| s.name == name)
            .min_by(|a, b| a.median().total_cmp(&b.median()))
    };
    ["stream", "gemv", "dp4a", "tensor"]
        .into_iter()
        .filter_map(of)
        .collect()
}

/// The best setting of a type's kernel.
pub struct Best {
    ty: String,
    kernel: &'static str,
    bandwidth: f64,
    /// Share of the streaming read.
    share: f64,
}

/// One line for the best setting of each kernel; returns those of products.
pub fn print(format: &str, errors: &[(&'static str, f64)], settings: &[Setting]) -> Vec<Best> {
    for (kernel, error) in errors {
        println!("{format}, {kernel}: off by {error:.1e} of the results' size against f64");
    }
    println!("| kernel | blocks × threads | GB/s (median) | spread | of streaming |\n|---|---|---|---|---|");
    let best = best(settings);
    let stream = best.first().map_or(f64::NAN, |s| s.bandwidth());
    let mut products = Vec::new();
    for s in best {
        let (bandwidth, spread) = (s.bandwidth(), 100.0 * s.spread());
        let share = bandwidth / stream;
        println!(
            "| {} | {} × {} | {bandwidth:.0} | {spread:.1}% | {:.1}% |",
            s.name,
            s.blocks,
            s.threads,
            100.0 * share
        );
        if s.name != "stream" {
            products.push(Best {
                ty: format.to_owned(),
                kernel: s.name,
                bandwidth,
                share,
            });
        }
    }
    products
}

/// One line for each kernel of each type.
pub fn print_summary(all: &[Best]) {
    println!("\n| type | kernel | GB/s | of streaming |\n|---|---|---|---|");
    for best in all {
        let share = 100.0 * best.share;
        println!(
            "| {} | {} | {:.0} | {share:.1}% |",
            best.ty, best.kernel, best.bandwidth
        );
    }
}

/// All settings, and the best of each kernel.
pub fn json(format: &str, errors: &[(&'static str, f64)], settings: &[Setting]) -> Value {
    let one = |s: &Setting| {
        json!({
            "kernel": s.name, "blocks": s.blocks, "threads": s.threads, "bytes": s.bytes,
            "gb_per_s": s.bandwidth(), "spread": s.spread(), "seconds": s.seconds,
        })
    };
    let best = best(settings);
    let stream = best.first().map_or(f64::NAN, |s| s.bandwidth());
    let best: Vec<_> = best
        .into_iter()
        .map(|s| json!({ "kernel": s.name, "gb_per_s": s.bandwidth(), "of_streaming": s.bandwidth() / stream }))
        .collect();
    json!({
        "format": format,
        "relative_error": errors.iter().map(|(kernel, e)| json!({ "kernel": kernel, "error": e })).collect::<Vec<_>>(),
        "best": best,
        "settings": settings.iter().map(one).collect::<Vec<_>>(),
    })
}

/// One line for each chain.
pub fn print_chains(chains: &[Chain]) {
    println!("| kernel | chain | PDL | blocks | ms | µs a stage | GB/s |\n|---|---|---|---|---|---|---|");
    for c in chains {
        let seconds = median(&c.seconds);
        let (ms, stage) = (seconds * 1e3, seconds / c.stages as f64 * 1e6);
        let megabytes = c.stage_bytes as f64 * 1e-6;
        let bandwidth = (c.stages * c.stage_bytes) as f64 / seconds * 1e-9;
        println!(
            "| {} | {} × {megabytes:.2} MB | {} | {} | {ms:.3} | {stage:.2} | {bandwidth:.0} |",
            c.kernel, c.stages, c.pdl, c.blocks
        );
    }
}

/// All chains.
pub fn chains_json(chains: &[Chain]) -> Value {
    let one = |c: &Chain| {
        json!({
            "kernel": c.kernel, "stages": c.stages, "stage_bytes": c.stage_bytes, "pdl": c.pdl, "blocks": c.blocks,
            "median_seconds": median(&c.seconds), "seconds": c.seconds,
        })
    };
    chains.iter().map(one).collect()
}
