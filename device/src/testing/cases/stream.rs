//! The streaming read: exact sums, for sizes around its unrolling.

use crate::stream::{launch, reference};
use crate::testing::{Case, Machine, Random, bytes};

fn check(machine: &mut dyn Machine, seed: u64) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let (blocks, threads) = (1 + random.below(4) as u32, 32 * (1 + random.below(4) as u32));
    let data = bytes(seed, 16 * (1 + random.below(4000)));
    let words: Vec<u32> = data.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
    let n = (blocks * threads) as usize;
    let (buffer, sums) = (machine.upload(&words)?, machine.output::<u32>(n)?);
    machine.run(&launch(buffer.cast(), data.len(), blocks, threads, sums).map_err(|e| e.to_string())?)?;
    let (got, want) = (reference(&machine.download(sums, n)?), reference(&words));
    if got == want {
        Ok(0.0)
    } else {
        Err(format!("sum {got:#x}, not {want:#x}"))
    }
}

pub(super) const CASES: &[Case] = &[Case {
    name: "stream_read",
    run: check,
}];
