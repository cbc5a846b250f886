//! Settings beside the default ones.

use crate::Options;
use crate::measure::{Setting, Trial, assembly, time};
use crate::model::{Assembly, Model};
use anyhow::Result;
use sparkinfer::cuda::Gpu;

/// A trial of a whole step with dependent launches.
fn whole_step(name: String, how: Assembly, depth: u32) -> Trial<'static> {
    Trial {
        name,
        how,
        depth,
        pdl: true,
        keep: &|_| true,
    }
}

/// Splits, warps and least shares of attention, in whole steps.
pub fn attention(gpu: &Gpu, model: &mut Model, options: &Options) -> Result<Vec<Setting>> {
    let mut all = Vec::new();
    for &depth in &options.depth {
        for splits in [8, 16, 24, 33] {
            for (warps, least) in [(4, 8), (8, 4), (8, 8), (8, 16), (8, 32)] {
                let how = Assembly {
                    splits,
                    warps,
                    least,
                    ..assembly(options)
                };
                let name = format!("{splits} splits of {warps} warps, {least} chunks at least");
                all.push(time(gpu, model, options, &whole_step(name, how, depth))?);
            }
        }
    }
    Ok(all)
}

/// Whole steps with each of the shapes of attention that were asked for.
pub fn shapes(gpu: &Gpu, model: &mut Model, options: &Options) -> Result<Vec<Setting>> {
    let mut all = Vec::new();
    for &depth in &options.depth {
        for &[parts, splits] in &options.shapes {
            let how = Assembly {
                splits: parts.max(1) * splits,
                parts,
                clusters: parts > 0,
                ..assembly(options)
            };
            let name = if parts > 0 {
                format!("{parts} clusters of {splits}")
            } else {
                format!("{splits} splits")
            };
            let setting = time(gpu, model, options, &whole_step(name, how, depth))?;
            if options.timeline {
                super::timeline::print(gpu, &setting)?;
            }
            all.push(setting);
        }
    }
    Ok(all)
}
