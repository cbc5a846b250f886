//! Timing of graphs.

use crate::Options;
use crate::model::{Assembly, Model, STAGES, Stage};
use anyhow::{Result, ensure};
use cuda_std::launch::Launcher;
use sparkinfer::cuda::{Gpu, Graph, Timer};

/// A graph, and the seconds that it took each time.
pub struct Setting {
    pub name: String,
    pub depth: u32,
    pub bytes: u64,
    pub seconds: Vec<f64>,
}

impl Setting {
    /// The middle measurement.
    pub fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Slowest minus fastest, as a share of the median.
    pub fn spread(&self) -> f64 {
        let (low, high) = self
            .seconds
            .iter()
            .fold((f64::MAX, 0f64), |(l, h), s| (l.min(*s), h.max(*s)));
        (high - low) / self.median()
    }
}

/// The assembly that the options ask for.
pub fn assembly(options: &Options) -> Assembly {
    let Options {
        splits,
        warps,
        least,
        head_blocks,
        clusters,
        parts,
        ..
    } = *options;
    Assembly {
        splits,
        warps,
        least,
        head_blocks,
        clusters,
        parts,
    }
}

/// Captures the launches that `keep` wants.
fn capture(gpu: &Gpu, stages: &[Stage], pdl: bool, keep: impl Fn(usize) -> bool) -> Result<Graph> {
    let wanted = stages.iter().filter(|stage| keep(stage.kind));
    Ok(Graph::capture(gpu.stream(), || {
        for stage in wanted {
            let config = stage.launch.config().pdl(pdl);
            gpu.launch(&stage.launch.clone().with_config(config))?;
        }
        Ok(())
    })?)
}

/// What is timed: a step's launches of some kinds at a depth.
pub struct Trial<'a> {
    pub name: String,
    pub how: Assembly,
    pub depth: u32,
    pub pdl: bool,
    pub keep: &'a dyn Fn(usize) -> bool,
}

/// Times one trial: `repeats` times `steps` replays, after a warm-up.
pub fn time(gpu: &Gpu, model: &mut Model, options: &Options, trial: &Trial) -> Result<Setting> {
    let graph = capture(gpu, &model.step(&trial.how)?, trial.pdl, trial.keep)?;
    let timer = Timer::new()?;
    let mut seconds = Vec::new();
    for repeat in 0..=options.repeats {
        model.set_depth(gpu, trial.depth)?;
        let total = timer.time(gpu.stream(), || {
            (0..options.steps).try_for_each(|_| graph.launch(gpu.stream()))
        })?;
        if repeat > 0 {
            seconds.push(total / options.steps as f64);
        }
    }
    let weights: u64 = (0..STAGES.len())
        .filter(|kind| (trial.keep)(*kind))
        .map(|kind| model.stage_bytes(kind))
        .sum();
    let cache = if (trial.keep)(1) {
        model.cache_bytes(trial.depth)
    } else {
        0
    };
    Ok(Setting {
        name: trial.name.clone(),
        depth: trial.depth,
        bytes: weights + cache,
        seconds,
    })
}

/// Whole steps at every depth.
pub fn depths(gpu: &Gpu, model: &mut Model, options: &Options) -> Result<Vec<Setting>> {
    let mut all = Vec::new();
    for &depth in &options.depth {
        for (name, pdl) in [("step", true), ("step, plain graph", false)] {
            let trial = Trial {
                name: name.into(),
                how: assembly(options),
                depth,
                pdl,
                keep: &|_| true,
            };
            all.push(time(gpu, model, options, &trial)?);
        }
        let logits = model.logits(gpu)?;
        ensure!(
            logits.iter().all(|v| v.is_finite()),
            "logits at depth {depth} are not finite"
        );
    }
    Ok(all)
}

/// Launches of one kind alone, and the first ones of every layer, at the first depth; attention at all of them.
pub fn stages(gpu: &Gpu, model: &mut Model, options: &Options) -> Result<Vec<Setting>> {
    let (how, depth) = (assembly(options), options.depth.first().copied().unwrap_or(0));
    let mut all = Vec::new();
    for (kind, name) in STAGES.iter().enumerate() {
        let depths = if kind == 1 { options.depth.as_slice() } else { &[depth] };
        for &depth in depths {
            let trial = Trial {
                name: (*name).into(),
                how,
                depth,
                pdl: true,
                keep: &|k| k == kind,
            };
            all.push(time(gpu, model, options, &trial)?);
        }
    }
    for (last, stage) in STAGES.iter().enumerate().take(5).skip(1) {
        let name = format!("{} to {stage}", STAGES[0]);
        all.push(time(
            gpu,
            model,
            options,
            &Trial {
                name,
                how,
                depth,
                pdl: true,
                keep: &|k| k <= last,
            },
        )?);
    }
    Ok(all)
}
