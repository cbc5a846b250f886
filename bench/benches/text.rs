//! What happens to a token outside the engine: the tokenizer, and the sampler over a large vocabulary.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sparkinfer::load::Model;
use sparkinfer::sample::{SampleOptions, Sampler};
use sparkinfer::tokenizer::DecodeOptions;

/// Logits of a large vocabulary.
const VOCABULARY: usize = 151_936;
const TEXT: &str = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in \
                    want of a wife. However little known the feelings or views of such a man may be…\n";

fn tokenizer(criterion: &mut Criterion) {
    let Ok(model) = Model::open(None) else {
        eprintln!("tokenizer: skipped, there is no bundled model");
        return;
    };
    let text = TEXT.repeat(50);
    let mut group = criterion.benchmark_group("tokenizer");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("encode", |bencher| bencher.iter(|| model.text_ids(black_box(&text))));
    let Ok(ids) = model.text_ids(&text) else { return };
    group.bench_function("decode", |bencher| {
        bencher.iter(|| model.tokenizer.decode(black_box(&ids), DecodeOptions::default()))
    });
}

fn sampler(criterion: &mut Criterion) {
    let bits = |i: usize| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let logits: Vec<f32> = (0..VOCABULARY).map(|i| bits(i) as f32 / (1 << 20) as f32).collect();
    let greedy = SampleOptions::default();
    let usual = SampleOptions {
        temperature: 0.7,
        ..greedy.clone()
    };
    let whole = SampleOptions {
        top_k: 0,
        ..usual.clone()
    };
    let mut group = criterion.benchmark_group("sampler");
    for (name, options) in [
        ("greedy", greedy),
        ("top-k 40, top-p, min-p", usual),
        ("top-p of all", whole),
    ] {
        let mut sampler = Sampler::new(options);
        group.bench_function(name, |bencher| bencher.iter(|| sampler.sample(black_box(&logits))));
    }
}

criterion_group!(benches, tokenizer, sampler);
criterion_main!(benches);
