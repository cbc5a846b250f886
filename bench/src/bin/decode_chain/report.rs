//! Tables and JSON.

use crate::measure::Setting;
use serde_json::{Value, json};

/// Whole steps.
pub fn depths(steps: &[Setting]) {
    println!("| depth | what | ms | tok/s | spread | GB/s |\n|---|---|---|---|---|---|");
    for s in steps {
        let seconds = s.median();
        println!(
            "| {} | {} | {:.4} | {:.0} | {:.1}% | {:.0} |",
            s.depth,
            s.name,
            1e3 * seconds,
            1.0 / seconds,
            100.0 * s.spread(),
            1e-9 * s.bytes as f64 / seconds
        );
    }
}

/// Parts of a step, a layer's share of each.
pub fn stages(stages: &[Setting], layers: usize) {
    println!("| depth | launches | ms a step | µs a layer | GB/s |\n|---|---|---|---|---|");
    for s in stages {
        let seconds = s.median();
        let layer = 1e6 * seconds / layers as f64;
        println!(
            "| {} | {} | {:.4} | {layer:.2} | {:.0} |",
            s.depth,
            s.name,
            1e3 * seconds,
            1e-9 * s.bytes as f64 / seconds
        );
    }
}

/// Other settings of the whole step.
pub fn settings(settings: &[Setting]) {
    if settings.is_empty() {
        return;
    }
    println!("| depth | setting | ms | spread |\n|---|---|---|---|");
    for s in settings {
        println!(
            "| {} | {} | {:.4} | {:.1}% |",
            s.depth,
            s.name,
            1e3 * s.median(),
            100.0 * s.spread()
        );
    }
}

/// Every measurement.
pub fn settings_json(settings: &[Setting]) -> Value {
    let one = |s: &Setting| {
        json!({
            "name": s.name, "depth": s.depth, "bytes": s.bytes,
            "median_seconds": s.median(), "spread": s.spread(), "seconds": s.seconds,
        })
    };
    settings.iter().map(one).collect()
}
