//! Kernels that stream weights, on the first GPU: plain reads, and products of every tiled type. Times are the GPU's own.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use cuda_std::launch::{Launcher, PreparedLaunch};
use sparkinfer::cuda::{Buffer, Gpu, Result, Timer};
use sparkinfer_device::layout::activation::Wide;
use sparkinfer_device::layout::{Shape, TileForm};
use sparkinfer_device::mmvq::{Operands, tensor};
use sparkinfer_device::stream;
use sparkinfer_gguf::TensorType;

/// Far more than an L2 cache holds.
const SHAPE: Shape = Shape {
    rows: 1 << 18,
    columns: 2048,
};
/// Blocks and threads of the plain reads, a multiprocessor.
const READ: [u32; 2] = [2, 1024];

/// Lets criterion count what the GPU's clock says of `launch`.
fn measure(criterion: &mut Criterion, gpu: &Gpu, name: &str, bytes: usize, launch: &PreparedLaunch) -> Result<()> {
    let timer = Timer::new()?;
    // Whatever is wrong with the launch shows here, once.
    timer.time(gpu.stream(), || gpu.launch(launch))?;
    let mut group = criterion.benchmark_group("gpu");
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
        bencher.iter_custom(|count| {
            let all = || (0..count).try_for_each(|_| gpu.launch(launch));
            timer
                .time(gpu.stream(), all)
                .map_or(Duration::MAX, Duration::from_secs_f64)
        });
    });
    Ok(())
}

fn kernels(criterion: &mut Criterion) {
    let done = Gpu::open(None).and_then(|gpu| reads(criterion, &gpu).and_then(|()| products(criterion, &gpu)));
    if let Err(reason) = done {
        eprintln!("gpu: skipped, {reason}");
    }
}

fn reads(criterion: &mut Criterion, gpu: &Gpu) -> Result<()> {
    let bytes = 1 << 30;
    let data = Buffer::<u8>::zeroed(gpu.stream(), bytes)?;
    let blocks = READ[0] * gpu.context().device().multiprocessors;
    let sums = Buffer::<u32>::uninitialised(gpu.context(), (blocks * READ[1]) as usize)?;
    let launch = stream::launch(data.ptr().cast(), bytes, blocks, READ[1], sums.ptr())?;
    measure(criterion, gpu, "plain reads", bytes, &launch)
}

fn products(criterion: &mut Criterion, gpu: &Gpu) -> Result<()> {
    let ones = Wide::quantize(&vec![1.0; SHAPE.columns]);
    let x = Buffer::from_slice(gpu.stream(), &ones)?;
    let y = Buffer::<f32>::zeroed(gpu.stream(), SHAPE.rows)?;
    for ty in TensorType::all().filter(|ty| TileForm::of(*ty).is_some()) {
        // Tiles are no larger than the file's blocks by more than padding; zeros are sound weights.
        let bytes = SHAPE.rows * SHAPE.columns / ty.block_len() * ty.block_bytes();
        let weights = Buffer::<u8>::zeroed(gpu.stream(), bytes + bytes / 8)?;
        let operands = Operands {
            weights: weights.ptr(),
            x: x.ptr(),
            y: y.ptr(),
        };
        let launch = tensor::launch(ty, SHAPE, operands, u32::MAX)?;
        measure(criterion, gpu, ty.name(), bytes, &launch)?;
    }
    Ok(())
}

criterion_group!(benches, kernels);
criterion_main!(benches);
