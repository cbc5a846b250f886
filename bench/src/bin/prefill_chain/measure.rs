//! Timing of prompts and of their launches.

use crate::prompt::Prompt;
use anyhow::Result;
use cuda_std::launch::{Launcher, PreparedLaunch};
use serde_json::{Value, json};
use sparkinfer::cuda::{Gpu, Timer};
use sparkinfer_device::prefill::plan::Named;

/// Launches that were timed together, and the seconds that they took each time.
pub struct Row {
    name: &'static str,
    launches: usize,
    seconds: Vec<f64>,
}

impl Row {
    /// The middle measurement.
    fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Times `launches` `repeats` times, after a warm-up.
fn time(gpu: &Gpu, name: &'static str, launches: &[&PreparedLaunch], repeats: usize) -> Result<Row> {
    let timer = Timer::new()?;
    let mut seconds = Vec::new();
    for repeat in 0..=repeats {
        let run = || launches.iter().try_for_each(|launch| gpu.launch(launch));
        let taken = timer.time(gpu.stream(), run)?;
        if repeat > 0 {
            seconds.push(taken);
        }
    }
    Ok(Row {
        name,
        launches: launches.len(),
        seconds,
    })
}

/// A prompt of `tokens` tokens: whole, then every kind of launch alone, on what the whole one left behind.
pub fn prompt(gpu: &Gpu, prompt: &Prompt<'_>, tokens: u32, repeats: usize) -> Result<Vec<Row>> {
    let launches: Vec<Named> = prompt.launches(tokens)?;
    let whole: Vec<&PreparedLaunch> = launches.iter().map(|named| &named.launch).collect();
    let mut rows = vec![time(gpu, "whole prompt", &whole, repeats)?];
    let mut names: Vec<&'static str> = Vec::new();
    for named in &launches {
        if !names.contains(&named.name) {
            names.push(named.name);
        }
    }
    for name in names {
        let own = launches.iter().filter(|named| named.name == name);
        let own: Vec<&PreparedLaunch> = own.map(|named| &named.launch).collect();
        rows.push(time(gpu, name, &own, repeats)?);
    }
    Ok(rows)
}

/// A table of one prompt.
pub fn print(rows: &[Row], tokens: u32, layers: usize) {
    println!("\n| {tokens} tokens | launches | ms | µs a launch | µs a layer | tok/s |\n|---|---|---|---|---|---|");
    for row in rows {
        let seconds = row.median();
        println!(
            "| {} | {} | {:.3} | {:.1} | {:.1} | {:.0} |",
            row.name,
            row.launches,
            1e3 * seconds,
            1e6 * seconds / row.launches as f64,
            1e6 * seconds / layers as f64,
            f64::from(tokens) / seconds
        );
    }
}

/// Every measurement.
pub fn json(rows: &[Row]) -> Value {
    let one = |row: &Row| json!({ "name": row.name, "launches": row.launches, "seconds": row.seconds });
    rows.iter().map(one).collect()
}
