//! Tokens a second of the bundled model, on the CPU and, where there is one, on the GPU.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sparkinfer::device::DeviceChoice;
use sparkinfer::load::{EngineOptions, Model};
use sparkinfer::sample::{SampleOptions, Sampler};
use sparkinfer::tuning::TuningSource;
use std::ops::ControlFlow;

/// Tokens of a measurement, behind as many of a prompt.
const TOKENS: usize = 32;

fn decode(criterion: &mut Criterion) {
    let Ok(model) = Model::open(None) else {
        eprintln!("decode: skipped, there is no bundled model");
        return;
    };
    let mut group = criterion.benchmark_group("bundled model");
    group.sample_size(10).throughput(Throughput::Elements(TOKENS as u64));
    let prompt: Vec<u32> = (1..=TOKENS as u32).collect();
    for device in [DeviceChoice::Cpu, DeviceChoice::Cuda(0)] {
        let options = EngineOptions {
            device,
            context: 3 * TOKENS,
            threads: None,
            sequences: 1,
            exact: false,
            kv: None,
            tuning: TuningSource::Known,
        };
        let mut engine = match model.engine(&options, &mut |_, _| {}) {
            Ok(engine) => engine,
            Err(reason) => {
                eprintln!("{device}: skipped, {reason}");
                continue;
            }
        };
        engine.prefill(&prompt).expect("the prompt fits");
        group.bench_function(format!("decode, {device}"), |bencher| {
            bencher.iter(|| {
                let mut sampler = Sampler::new(SampleOptions::default());
                let result = engine.generate(&[1], &mut sampler, TOKENS, &mut |_| ControlFlow::Continue(()));
                engine.truncate(TOKENS);
                result
            });
        });
        engine.reset();
        group.bench_function(format!("prompt, {device}"), |bencher| {
            bencher.iter(|| {
                engine.reset();
                engine.prefill(&prompt).map(|logits| logits[0])
            });
        });
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
