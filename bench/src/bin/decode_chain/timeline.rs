//! When blocks came where in the last layer of a step.

use super::measure::Setting;
use anyhow::{Context as _, Result};
use cuda_std::timeline::{BLOCKS, LAUNCHES, NAME, POINTS};
use sparkinfer::cuda::Gpu;
use sparkinfer_device::decode::marks::{Launch, Point};

/// Microseconds at which the first, the middle and the last block came to a point.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Times([f64; 3]);

impl Times {
    /// From nanoseconds of blocks, since `zero`; what is before `begin` are marks that an earlier trial with more blocks left, or
    /// zeros where no block ever came.
    fn new(blocks: &[u64], begin: u64, zero: u64) -> Option<Self> {
        let mut came: Vec<u64> = blocks.iter().copied().filter(|time| *time >= begin).collect();
        came.sort_unstable();
        let since = |time: u64| (time as f64 - zero as f64) / 1e3;
        let (first, last) = (came.first()?, came.last()?);
        Some(Self([since(*first), since(came[came.len() / 2]), since(*last)]))
    }
}

/// Prints the table of the last step, which was `setting`'s: launches down, points across, each the first, the middle and the
/// last block.
pub fn print(gpu: &Gpu, setting: &Setting) -> Result<()> {
    let table = gpu
        .module()
        .global_words::<{ LAUNCHES * POINTS * BLOCKS }>(NAME)
        .context("no marks in these kernels: build with --features timeline")?;
    let blocks = |launch: Launch, point: Point| {
        let first = (launch as usize * POINTS + point as usize) * BLOCKS;
        &table[first..first + BLOCKS]
    };
    // All trials have as many blocks of the layer's first launch, so these are the last step's. The layer begins when they may
    // read what the one before wrote.
    let earliest = |point| {
        blocks(Launch::Qkv, point)
            .iter()
            .copied()
            .filter(|time| *time != 0)
            .min()
    };
    let (begin, zero) = earliest(Point::Start)
        .zip(earliest(Point::Waited))
        .context("no block has left a mark")?;
    println!("\ndepth {}, {}", setting.depth, setting.name);
    for launch in Launch::ALL {
        print!("{:<10}", format!("{launch:?}"));
        for point in Point::ALL {
            if let Some(Times([first, middle, last])) = Times::new(blocks(launch, point), begin, zero) {
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
            Times::new(&[0, 3_000, 1_500, 0, 2_000], 500, 1_000),
            Some(Times([0.5, 1.0, 2.0]))
        );
        assert_eq!(Times::new(&[0, 0], 500, 1_000), None);
    }

    #[test]
    fn nor_do_marks_of_an_earlier_trial() {
        let blocks = [900, 3_000, 100, 200, 300];
        assert_eq!(Times::new(&blocks, 800, 1_000), Some(Times([-0.1, 2.0, 2.0])));
    }
}
