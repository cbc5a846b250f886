//! Thread block clusters. Each block writes its share of the output's rows: the first 64 ÷ size of its threads do.

use super::{read, write};
use crate::prelude::*;

/// Remote stores to the block behind and remote loads from the one before, ordered by cluster barriers.
#[kernel]
pub unsafe fn selftest_clusters(input: *const u32, output: *mut u32) {
    let (i, rank, size) = (thread::index_in_block(), cluster::rank(), cluster::size());
    let (words, pairs) = (shared::dynamic::<u32>(0, 64), shared::dynamic::<U32x2>(512, 64));
    let (quads, halves) = (shared::dynamic::<u32>(1024, 256), shared::dynamic::<u16>(2048, 64));
    cluster::arrive();
    // SAFETY: the shape of all self-tests.
    let [a, b, c, d] = unsafe { read(input) }.map(|word| word ^ rank);
    cluster::wait();
    let (next, before) = neighbours(rank, size);
    words.in_block(next).store(i, a);
    pairs.in_block(next).store(i, U32x2([b, c]));
    quads.in_block(next).store_as(4 * i, U32x4([a, b, c, d]));
    halves.in_block(next).store(i, d as u16);
    cluster::sync();
    let pair = pairs.cast::<u64>().in_block(before).load(63 - i);
    let quad = quads.in_block(before).load_as::<U32x4>(4 * i).0;
    let results = [
        rank | size << 8 | cluster::id() << 16,
        words.load(i),
        halves.load(i).into(),
        words.in_block(before).load(i ^ 7),
        pair as u32,
        (pair >> 32) as u32,
        quad[2],
        quads.load(4 * i + 3),
    ];
    cluster::sync();
    // SAFETY: the shape of all self-tests.
    unsafe { write_share(output, i, results) }
}

/// Barriers of other blocks: asynchronous stores that signal by bytes, the answer, then plain stores and arrivals.
#[kernel]
pub unsafe fn selftest_cluster_signals(input: *const u32, output: *mut u32) {
    const BYTES: u32 = 64 * (4 + 8 + 8 + 16);
    let (i, rank, size) = (thread::index_in_block(), cluster::rank(), cluster::size());
    let (words, pairs) = (shared::dynamic::<u32>(0, 64), shared::dynamic::<U32x2>(512, 64));
    let (longs, quads) = (shared::dynamic::<u64>(1024, 64), shared::dynamic::<U32x4>(2048, 64));
    let [bytes, answers, arrivals] = [0, 1, 2].map(|n| mbarrier::Barrier::at(shared::dynamic::<u64>(3072, 3), n));
    if i == 0 {
        bytes.init(1);
        answers.init(64);
        arrivals.init(64);
        mbarrier::fence_init();
        bytes.arrive_expect(BYTES);
    }
    cluster::arrive_relaxed();
    cluster::wait();
    // SAFETY: the shape of all self-tests.
    let [a, b, c, d] = unsafe { read(input) }.map(|word| word ^ rank);
    let (next, before) = neighbours(rank, size);
    let signal = bytes.in_block(next);
    words.in_block(next).store_async(i, a, signal);
    pairs.in_block(next).store_async(i, U32x2([b, c]), signal);
    longs
        .in_block(next)
        .store_async(i, u64::from(c) << 32 | u64::from(d), signal);
    quads.in_block(next).store_async(i, U32x4([d, c, b, a]), signal);
    bytes.wait_cluster(0);
    let (word, pair, long, quad) = (words.load(63 - i), pairs.load(i).0, longs.load(i ^ 1), quads.load(i).0);
    answers.in_block(before).arrive();
    answers.wait_cluster(0);
    words.in_block(next).store(i, b);
    arrivals.in_block(next).arrive();
    arrivals.wait_cluster(0);
    let again = words.load(63 - i);
    let results = [
        word,
        pair[0],
        pair[1],
        long as u32,
        (long >> 32) as u32,
        quad[0],
        quad[3],
        again,
    ];
    cluster::sync();
    // SAFETY: the shape of all self-tests.
    unsafe { write_share(output, i, results) }
}

/// The blocks behind and before block `rank` in a ring of `size`.
#[inline(always)]
fn neighbours(rank: u32, size: u32) -> (u32, u32) {
    let next = if rank + 1 == size { 0 } else { rank + 1 };
    (next, if rank == 0 { size - 1 } else { rank - 1 })
}

/// Sets this block's rows of the output: those of its first threads.
///
/// # Safety
/// `output` has 8 words for each of 64 threads.
#[inline(always)]
unsafe fn write_share(output: *mut u32, thread: u32, results: [u32; 8]) {
    let rows = super::THREADS as u32 / cluster::size().max(1);
    if thread < rows {
        // SAFETY: the caller's: the rows of all blocks are the output's.
        unsafe { write(output.add((8 * rows * cluster::rank()) as usize), results) }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) mod expected {
    use super::super::{THREADS, Words};
    use core::array::from_fn;

    type Input = [[u32; 4]; THREADS];

    /// Blocks of a cluster, in both tests.
    const SIZE: usize = 8;

    /// Row by row: what block `rank`'s thread `i` writes.
    fn rows(f: impl Fn(usize, usize) -> [u32; 8]) -> Words {
        let share = THREADS / SIZE;
        from_fn(|row| f(row / share, row % share))
    }

    /// What thread `i` of the block `back` before `rank` has read.
    fn of(input: &Input, rank: usize, back: usize, i: usize) -> [u32; 4] {
        let source = (rank + SIZE - back) % SIZE;
        input[i].map(|word| word ^ source as u32)
    }

    pub fn selftest_clusters(input: &Input) -> Words {
        rows(|rank, i| {
            let (here, there) = (of(input, rank, 1, i), |i| of(input, rank, 2, i));
            [
                (rank | SIZE << 8) as u32,
                here[0],
                here[3] & 0xffff,
                there(i ^ 7)[0],
                there(63 - i)[1],
                there(63 - i)[2],
                there(i)[2],
                here[3],
            ]
        })
    }

    pub fn selftest_cluster_signals(input: &Input) -> Words {
        rows(|rank, i| {
            let (own, far, near) = (
                of(input, rank, 1, i),
                of(input, rank, 1, 63 - i),
                of(input, rank, 1, i ^ 1),
            );
            [far[0], own[1], own[2], near[3], near[2], own[3], own[0], far[1]]
        })
    }
}
