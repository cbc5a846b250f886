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
    let plan = engine.plan();
    let stages: Vec<&Stage> = plan.body.stages.iter().chain(&plan.head.stages).collect();
    timed(engine.backend(), &stages, repetitions)
}

/// The times of a step of these stages, whole and by name.
pub(super) fn timed<B: Backend>(backend: &B, stages: &[&Stage], repetitions: usize) -> Result<Profile> {
    let seconds = |launches: Vec<PreparedLaunch>| seconds_of(backend, &launches, repetitions);
    let whole_seconds = seconds(chosen(stages, |_| true))?;
    let mut profiles = Vec::new();
    for name in names(stages) {
        let own: Vec<_> = stages.iter().filter(|stage| stage.name == name).collect();
        profiles.push(StageProfile {
            name: name.to_owned(),
            launches: own.len(),
            weight_bytes: own.iter().map(|stage| stage.bytes).sum(),
            alone_seconds: seconds(chosen(stages, |stage| stage.name == name))?,
            share_seconds: whole_seconds - seconds(chosen(stages, |stage| stage.name != name))?,
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

#[cfg(all(test, feature = "bundled-model"))]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::gpu::emulated::Emulated;
    use crate::load::Model;
    use crate::model::KvType;

    #[test]
    fn a_profile_covers_the_step_and_changes_nothing() {
        let Model { gguf, spec, .. } = Model::open(None).unwrap();
        let load = || GpuEngine::load(Emulated::default(), &gguf, &spec, 64, &mut |_, _| {}).unwrap();
        let (mut engine, mut other) = (load(), load());
        engine.prefill(&[36, 1783]).unwrap();
        other.prefill(&[36, 1783]).unwrap();
        let profile = Engine::profile(&mut engine, 3628, 1).unwrap().unwrap();
        let launches: usize = profile.stages.iter().map(|stage| stage.launches).sum();
        assert_eq!(launches, profile.launches);
        assert!(profile.stages.iter().all(|stage| stage.alone_seconds > 0.0));
        // Norms and tables are read as well, but not counted.
        let bytes: u64 = profile.stages.iter().map(|stage| stage.weight_bytes).sum();
        let read = spec.memory(KvType::F16).read_per_token;
        assert!(bytes <= read && bytes * 100 >= read * 99, "{bytes} of {read}");
        assert_eq!(engine.position(), 2);
        assert_eq!(engine.decode(3628).unwrap(), other.decode(3628).unwrap());
    }

    #[test]
    fn a_traced_step_is_a_step() {
        let Model { gguf, spec, .. } = Model::open(None).unwrap();
        let load = || GpuEngine::load(Emulated::default(), &gguf, &spec, 64, &mut |_, _| {}).unwrap();
        let (mut engine, mut other) = (load(), load());
        other.prefill(&[36]).unwrap();
        Engine::trace(&mut engine, 36).unwrap();
        let values = Engine::trace(&mut engine, 1783).unwrap();
        let parts: usize = spec.layers.iter().map(|layer| layer.parts.len()).sum();
        assert_eq!(values.len(), 1 + parts + 1);
        assert_eq!(values.last().map(Vec::as_slice), Some(other.decode(1783).unwrap()));
    }
}
