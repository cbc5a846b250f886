//! Bandwidth over a sweep of grids, interleaved.

use crate::workload::Workload;
use anyhow::Result;
use cuda_std::launch::{Launcher, PreparedLaunch};
use sparkinfer::cuda::{Buffer, Gpu, Timer};
use sparkinfer_device::stream;

/// One launch shape of one kernel, and the seconds that it took each time.
pub struct Setting {
    pub name: &'static str,
    pub blocks: u32,
    pub threads: u32,
    pub bytes: usize,
    pub seconds: Vec<f64>,
}

impl Setting {
    /// The median time.
    pub fn median(&self) -> f64 {
        crate::report::median(&self.seconds)
    }

    /// GB/s at the median.
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.median() * 1e-9
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

/// Blocks a multiprocessor in the sweep.
const BLOCKS_PER_SM: [u32; 8] = [1, 2, 3, 4, 6, 8, 16, 32];
const STREAM_THREADS: [u32; 3] = [256, 512, 1024];

/// Times all kernels of a workload: one launch of each setting after another, `repeats` times over.
pub fn sweep(gpu: &Gpu, work: &Workload, repeats: usize) -> Result<Vec<Setting>> {
    let sms = gpu.context().device().multiprocessors;
    let sums = Buffer::<u32>::zeroed(gpu.stream(), (sms * 32 * 1024) as usize)?;
    let mut launches = Vec::new();
    for per_sm in BLOCKS_PER_SM {
        for threads in STREAM_THREADS {
            let (buffer, blocks) = (work.stream_buffer().ptr().cast(), sms * per_sm);
            launches.push((
                "stream",
                stream::launch(buffer, work.bytes(), blocks, threads, sums.ptr())?,
            ));
        }
        for product in &work.products {
            launches.push((product.name, work.launch(product, 0, work.shape.rows, sms * per_sm)?));
        }
    }
    time_interleaved(gpu, launches, work.bytes(), repeats)
}

fn time_interleaved(
    gpu: &Gpu,
    launches: Vec<(&'static str, PreparedLaunch)>,
    bytes: usize,
    repeats: usize,
) -> Result<Vec<Setting>> {
    let timer = Timer::new()?;
    let alone = |(name, launch): (&'static str, PreparedLaunch)| {
        let config = *launch.config();
        let setting = Setting {
            name,
            blocks: config.grid[0],
            threads: config.block[0],
            bytes,
            seconds: Vec::new(),
        };
        (setting, launch.with_config(config.pdl(false)))
    };
    let mut all: Vec<_> = launches.into_iter().map(alone).collect();
    for repeat in 0..=repeats {
        for (setting, launch) in &mut all {
            let seconds = timer.time(gpu.stream(), || gpu.launch(launch))?;
            // The first round warms up.
            if repeat > 0 {
                setting.seconds.push(seconds);
            }
        }
    }
    Ok(all.into_iter().map(|(setting, _)| setting).collect())
}
