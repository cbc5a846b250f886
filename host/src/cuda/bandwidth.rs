//! How fast the GPU's memory is read: the measure of every kernel that streams weights.

use super::{Buffer, Gpu, Result, Timer};
use cuda_std::launch::Launcher;
use sparkinfer_device::stream;

/// Bytes read by one pass: far more than any L2 cache holds.
const BYTES: usize = 1 << 30;
/// Passes that count, after one that does not.
const PASSES: usize = 7;
const THREADS: u32 = 256;
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// Bytes a second of streaming reads with 16-byte loads: the median of several passes over 1 GiB, or over a quarter of
/// the free memory where that is less.
///
/// # Errors
/// Too little free memory, or a failed launch.
pub fn measure(gpu: &Gpu) -> Result<f64> {
    let (free, _) = gpu.context().free_bytes()?;
    let bytes = BYTES.min(free / 4 / 4096 * 4096);
    let data = Buffer::<u8>::zeroed(gpu.stream(), bytes)?;
    let blocks = gpu.context().device().multiprocessors * BLOCKS_PER_MULTIPROCESSOR;
    let sums = Buffer::<u32>::uninitialised(gpu.context(), (blocks * THREADS) as usize)?;
    let launch = stream::launch(data.ptr().cast(), bytes, blocks, THREADS, sums.ptr())?;
    let timer = Timer::new()?;
    let pass = || timer.time(gpu.stream(), || gpu.launch(&launch));
    pass()?;
    let mut seconds = (0..PASSES).map(|_| pass()).collect::<Result<Vec<f64>>>()?;
    seconds.sort_by(f64::total_cmp);
    Ok(bytes as f64 / seconds[PASSES / 2])
}
