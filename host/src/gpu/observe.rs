//! Looking into a step: its values stage by stage, and the time of each stage.

use std::time::Instant;

use cuda_std::launch::PreparedLaunch;

use super::backend::{Backend, Result};
use super::engine::GpuEngine;
use super::plan::Stage;
use crate::profile::{Profile, StageProfile};

/// Runs the step of `token` launch by launch and takes the residual stream wherever a part is complete; the logits last.
pub(super) fn trace<B: Backend>(engine: &mut GpuEngine<B>, token: u32) -> Result<Vec<Vec<f32>>> {
    engine.prepare_step(token)?;
    let mut values = Vec::new();
    let backend = engine.backend();
    for stage in &engine.plan().body.stages {
        backend.run(std::slice::from_ref(&stage.launch))?;
        if let Some(residual) = stage.residual {
            let mut value = vec![0.0f32; residual.length];
            backend.download(residual.address, bytemuck::cast_slice_mut(&mut value))?;
            values.push(value);
        }
    }
    backend.run(&engine.plan().head.launches())?;
    values.push(engine.finish_step()?.to_vec());
    Ok(values)
}

/// Times the step of `token`, and for each name of a stage its launches alone and the step without them. The launch
/// that makes the next token is left out: it would move the sequence on.
pub(super) fn profile<B: Backend>(engine: &mut GpuEngine<B>, token: u32, repetitions: usize) -> Result<Profile> {
    engine.prepare_step(token)?;
    let (plan, backend) = (engine.plan(), engine.backend());
    let stages: Vec<&Stage> = plan.body.stages.iter().chain(&plan.head.stages).collect();
    let seconds = |launches: Vec<PreparedLaunch>| seconds_of(backend, &launches, repetitions);
    let whole_seconds = seconds(chosen(&stages, |_| true))?;
    let mut profiles = Vec::new();
    for name in names(&stages) {
        let own: Vec<_> = stages.iter().filter(|stage| stage.name == name).collect();
        profiles.push(StageProfile {
            name: name.to_owned(),
            launches: own.len(),
            weight_bytes: own.iter().map(|stage| stage.bytes).sum(),
            alone_seconds: seconds(chosen(&stages, |stage| stage.name == name))?,
            share_seconds: whole_seconds - seconds(chosen(&stages, |stage| stage.name != name))?,
        });
    }
    Ok(Profile {
        whole_seconds,
        launches: stages.len(),
        stages: profiles,
    })
}

/// The launches of the stages that `choose` wants.
fn chosen(stages: &[&Stage], choose: impl Fn(&Stage) -> bool) -> Vec<PreparedLaunch> {
    stages
        .iter()
        .filter(|stage| choose(stage))
        .map(|stage| stage.launch.clone())
        .collect()
}

/// Every name once, in the order of first use.
fn names(stages: &[&Stage]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for stage in stages {
        if !names.contains(&stage.name) {
            names.push(stage.name);
        }
    }
    names
}

/// Seconds of one replay of `launches`: many in a row after one that does not count, divided by their number.
fn seconds_of<B: Backend>(backend: &B, launches: &[PreparedLaunch], repetitions: usize) -> Result<f64> {
    if launches.is_empty() {
        return Ok(0.0);
    }
    let recording = backend.record(launches)?;
    backend.replay(&recording)?;
    backend.synchronize()?;
    let start = Instant::now();
    for _ in 0..repetitions.max(1) {
        backend.replay(&recording)?;
    }
    backend.synchronize()?;
    Ok(start.elapsed().as_secs_f64() / repetitions.max(1) as f64)
}
