//! Chains of dependent launches, as a decode step has them.

use crate::workload::{Product, Workload};
use anyhow::Result;
use cuda_std::launch::Launcher;
use sparkinfer::cuda::{Gpu, Graph, Timer};

/// A chain and what it took.
pub struct Chain {
    pub kernel: &'static str,
    pub stages: usize,
    pub stage_bytes: usize,
    pub pdl: bool,
    pub blocks: u32,
    /// Seconds of the whole chain, each time.
    pub seconds: Vec<f64>,
}

/// Stages and rows of each: about a token's worth of weights, in as many launches as it takes.
const CHAINS: [(usize, usize); 3] = [(288, 5632), (144, 11264), (288, 2048)];
const BLOCKS_PER_SM: [u32; 6] = [1, 2, 3, 4, 6, 8];

/// The best grid of each chain, with and without programmatic dependent launch.
pub fn measure(gpu: &Gpu, work: &Workload, repeats: usize) -> Result<Vec<Chain>> {
    let mut best = Vec::new();
    for product in &work.products {
        for (stages, rows) in CHAINS {
            for pdl in [false, true] {
                let mut tried = Vec::new();
                for per_sm in BLOCKS_PER_SM {
                    tried.push(time(gpu, work, product, (stages, rows), per_sm, pdl, repeats)?);
                }
                let median = |chain: &Chain| crate::report::median(&chain.seconds);
                best.extend(tried.into_iter().min_by(|a, b| median(a).total_cmp(&median(b))));
            }
        }
    }
    Ok(best)
}

fn time(
    gpu: &Gpu,
    work: &Workload,
    product: &Product,
    (stages, rows): (usize, usize),
    per_sm: u32,
    pdl: bool,
    repeats: usize,
) -> Result<Chain> {
    let blocks = per_sm * gpu.context().device().multiprocessors;
    let places = work.shape.rows / rows;
    let mut launches = Vec::new();
    for stage in 0..stages {
        let launch = work.launch(product, stage % places * rows, rows, blocks)?;
        let config = launch.config().pdl(pdl);
        launches.push(launch.with_config(config));
    }
    let graph = Graph::capture(gpu.stream(), || {
        launches.iter().try_for_each(|launch| gpu.launch(launch))
    })?;
    let timer = Timer::new()?;
    graph.launch(gpu.stream())?;
    let seconds: Result<Vec<_>, _> = (0..repeats)
        .map(|_| timer.time(gpu.stream(), || graph.launch(gpu.stream())))
        .collect();
    let stage_bytes = work.bytes() / work.shape.rows * rows;
    let blocks = launches[0].config().grid[0];
    Ok(Chain {
        kernel: product.name,
        stages,
        stage_bytes,
        pdl,
        blocks,
        seconds: seconds?,
    })
}
