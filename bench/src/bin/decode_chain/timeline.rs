//! When blocks came where in the last layer of a step.

use anyhow::{Context as _, Result};
use cuda_std::timeline::{BLOCKS, LAUNCHES, NAME, POINTS};
use sparkinfer::cuda::Gpu;
use sparkinfer_device::decode::marks::{Launch, Point};
use std::ffi::CString;

/// Microseconds at which the first, the middle and the last block came to a point.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Times([f64; 3]);

impl Times {
    /// From nanoseconds of blocks, 0 for those that did not come, since `start`.
    fn new(blocks: &[u64], start: u64) -> Option<Self> {
        let mut came: Vec<u64> = blocks.iter().copied().filter(|time| *time != 0).collect();
        came.sort_unstable();
        let since = |time: u64| (time as f64 - start as f64) / 1e3;
        let (first, last) = (came.first()?, came.last()?);
        Some(Self([since(*first), since(came[came.len() / 2]), since(*last)]))
    }
}

/// Prints the table of the last step: launches down, points across, each the first, the middle and the last block.
pub fn print(gpu: &Gpu) -> Result<()> {
    let table = gpu
        .module()
        .global_words::<{ LAUNCHES * POINTS * BLOCKS }>(&CString::new(NAME)?)
        .context("no marks in these kernels: build with --features timeline")?;
    let blocks = |launch: Launch, point: Point| {
        let first = (launch as usize * POINTS + point as usize) * BLOCKS;
        &table[first..first + BLOCKS]
    };
    // The layer begins when its first launch may read what the one before wrote.
    let waited = blocks(Launch::Qkv, Point::Waited);
    let start = waited.iter().copied().filter(|time| *time != 0).min().unwrap_or(0);
    for launch in Launch::ALL {
        print!("{:<10}", format!("{launch:?}"));
        for point in Point::ALL {
            if let Some(Times([first, middle, last])) = Times::new(blocks(launch, point), start) {
                print!(" {point:?} {first:.1}/{middle:.1}/{last:.1}");
            }
        }
        println!();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_did_not_come_do_not_count() {
        assert_eq!(
            Times::new(&[0, 3_000, 1_500, 0, 2_000], 1_000),
            Some(Times([0.5, 1.0, 2.0]))
        );
        assert_eq!(Times::new(&[0, 0], 1_000), None);
    }
}
