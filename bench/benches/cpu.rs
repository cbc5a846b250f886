//! The CPU engine's inner loops: dequantising rows, and a matrix times one vector, for every type that can be written.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sparkinfer::cpu::{CpuMatrix, Numerics};
use sparkinfer::model::{Linear, Matrix};
use sparkinfer_gguf::dequant::dequantize_row;
use sparkinfer_gguf::quantize::quantize_row;
use sparkinfer_gguf::{Gguf, GgufWriter, TensorType};

const ROWS: usize = 512;
const COLUMNS: usize = 2048;
const TENSOR: &str = "matrix";

/// Numbers between -1 and 1 without a pattern.
fn values(count: usize) -> Vec<f32> {
    let bits = |i: usize| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..count).map(|i| bits(i) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// The types that can be written, with a matrix of each in a file of its own.
fn matrices() -> Vec<(TensorType, Gguf)> {
    let values = values(ROWS * COLUMNS);
    let supported = TensorType::all().filter(|ty| ty.is_supported());
    supported.filter_map(|ty| Some((ty, file(ty, &values)?))).collect()
}

fn file(ty: TensorType, values: &[f32]) -> Option<Gguf> {
    let mut bytes = vec![0; ty.row_bytes(values.len())?];
    quantize_row(ty, values, &mut bytes).ok()?;
    let mut writer = GgufWriter::new();
    writer.tensor(TENSOR, ty, &[COLUMNS as u64, ROWS as u64]).ok()?;
    Gguf::from_vec("benchmark", writer.to_vec(|_, out| out.write_all(&bytes)).ok()?).ok()
}

fn linear(ty: TensorType) -> Linear {
    let matrix = Matrix {
        tensor: TENSOR.to_owned(),
        ty,
        cols: COLUMNS,
        rows: ROWS,
        first_row: 0,
        expert_rows: ROWS,
        experts: 1,
    };
    Linear {
        matrix,
        scale: None,
        bias: None,
    }
}

fn dequantise(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dequantise");
    for (ty, gguf) in matrices() {
        let data = gguf.tensor(TENSOR).expect("it was just written").data;
        let mut out = vec![0.0; ROWS * COLUMNS];
        group.throughput(Throughput::Bytes(data.len() as u64));
        group.bench_function(ty.name(), |bencher| {
            bencher.iter(|| dequantize_row(ty, black_box(data), &mut out))
        });
    }
}

fn products(criterion: &mut Criterion) {
    let x = values(COLUMNS);
    for (name, numerics) in [("product", Numerics::Practical), ("f32 product", Numerics::Reference)] {
        let mut group = criterion.benchmark_group(name);
        for (ty, gguf) in matrices() {
            let matrix = CpuMatrix::new(&gguf, &linear(ty), numerics, 1).expect("one thread and a sound file");
            let mut out = vec![0.0; ROWS];
            group.throughput(Throughput::Bytes(linear(ty).bytes()));
            group.bench_function(ty.name(), |bencher| {
                bencher.iter(|| matrix.multiply(black_box(&x), &mut out))
            });
        }
    }
}

criterion_group!(benches, dequantise, products);
criterion_main!(benches);
