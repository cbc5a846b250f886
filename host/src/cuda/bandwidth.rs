//! How fast the GPU's memory is read: the measure of every kernel that streams weights.

use super::{Buffer, Gpu, Result, Timer};
use cuda_std::launch::{Launcher, PreparedLaunch};
use sparkinfer_device::stream;

/// Bytes read by one pass: far more than any L2 cache holds, and long beside the cost of a launch.
const BYTES: usize = 4 << 30;
/// Passes of each shape that count, after one that does not.
const PASSES: usize = 5;
/// Blocks a multiprocessor and threads a block that are tried.
const SHAPES: [(u32, u32); 4] = [(1, 1024), (2, 1024), (4, 512), (8, 256)];

/// Bytes a second of streaming reads with 16-byte loads over 4 GiB, or over a quarter of the free memory where that is
/// less: the median of several passes, in the best of a few shapes of launch.
///
/// # Errors
/// Too little free memory, or a failed launch.
pub fn measure(gpu: &Gpu) -> Result<f64> {
    let (free, _) = gpu.context().free_bytes()?;
    let bytes = BYTES.min(free / 4 / 4096 * 4096);
    let data = Buffer::<u8>::zeroed(gpu.stream(), bytes)?;
    let multiprocessors = gpu.context().device().multiprocessors;
    let most_threads = SHAPES
        .iter()
        .map(|(blocks, threads)| blocks * threads)
        .max()
        .unwrap_or(0);
    let sums = Buffer::<u32>::uninitialised(gpu.context(), (multiprocessors * most_threads) as usize)?;
    let mut best = f64::INFINITY;
    for (blocks, threads) in SHAPES {
        let launch = stream::launch(data.ptr().cast(), bytes, blocks * multiprocessors, threads, sums.ptr())?;
        best = best.min(median_seconds(gpu, &launch)?);
    }
    Ok(bytes as f64 / best)
}

/// The median time of the launch.
fn median_seconds(gpu: &Gpu, launch: &PreparedLaunch) -> Result<f64> {
    let timer = Timer::new()?;
    let pass = || timer.time(gpu.stream(), || gpu.launch(launch));
    pass()?;
    let mut seconds = (0..PASSES).map(|_| pass()).collect::<Result<Vec<f64>>>()?;
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[PASSES / 2])
}
