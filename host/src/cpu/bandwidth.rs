//! How fast the engine's threads read memory: the measure of every product that streams weights.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::pool::Pool;

/// Words read by one pass, 256 MiB: more than most last-level caches hold.
const WORDS: usize = 32 << 20;
/// Words of one task.
const TASK: usize = 1 << 18;
/// Passes that count, after one that does not.
const PASSES: usize = 5;

/// Bytes a second of a pass of all threads over 256 MiB: the best of several, since anything else on the machine only
/// slows it down.
pub(super) fn measure(pool: &Pool) -> f64 {
    // Written, so that every page is there before it is read.
    let data: Vec<u64> = (0..WORDS as u64).collect();
    let best = (0..=PASSES)
        .map(|_| seconds(pool, &data))
        .skip(1)
        .fold(f64::INFINITY, f64::min);
    (8 * WORDS) as f64 / best
}

fn seconds(pool: &Pool, data: &[u64]) -> f64 {
    let sum = AtomicU64::new(0);
    let start = Instant::now();
    pool.enter(|| {
        pool.each(data.chunks(TASK).collect(), |words: &[u64]| {
            let part = words.iter().fold(0u64, |sum, &word| sum.wrapping_add(word));
            sum.fetch_add(part, Ordering::Relaxed);
        });
    });
    black_box(sum.into_inner());
    start.elapsed().as_secs_f64()
}
