//! Router logits of several sequences: [`router`](crate::decode::router) for each.
//!
//! `out` is `[sequence][expert]`. It also clears the words of all [`Choices`].
//!
//! **Bytes**: the router, once; the streams from L2 for each block. **Shape of the work**: a block for every expert, with
//! four warps for every four sequences; a thread takes 16-byte vectors 128 apart, the first four of them (2,048 columns)
//! before the wait, and the sums of its four sequences over the warp overlap.
//!
//! **Launch**: [`router`].

use super::Streams;
use super::rows::squares;
use crate::decode::choices::{Choices, MAX_USED};
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// Threads for four sequences.
const THREADS: u32 = 128;
/// Vectors of a row that a thread loads before the wait.
const EARLY: usize = 4;
/// Sequences of a thread.
const TOGETHER: u32 = 4;

/// Vector `i` of a row; zero past the end.
#[inline(always)]
unsafe fn vector(row: *const f32, i: u32, vectors: u32) -> [f32; 4] {
    if i >= vectors {
        return [0.0; 4];
    }
    // SAFETY: the vector exists.
    unsafe { global::load(row.cast::<F32x4>().add(i as usize)).0 }
}

/// `sum + w · x`.
#[inline(always)]
fn dot(w: [f32; 4], x: [f32; 4], sum: f32) -> f32 {
    float::fma(
        x[0],
        w[0],
        float::fma(x[1], w[1], float::fma(x[2], w[2], float::fma(x[3], w[3], sum))),
    )
}

/// Router logits of several sequences, with the norm before them folded in.
///
/// Prepare it with [`router`].
///
/// # Safety
/// The arguments of a launch that [`router`] prepared.
#[kernel(pdl)]
pub unsafe fn many_router(
    router: *const f32,
    streams: Streams,
    out: *mut f32,
    words: DevicePtr<u64>,
    length: u32,
    eps: f32,
    sequences: u32,
) {
    thread::touch(sequences);
    let (id, vectors) = (thread::thread_idx_x() % THREADS, length / 4);
    let (lane, warp) = (warp::lane(), id / 32);
    let mine = thread::thread_idx_x() / THREADS * TOGETHER;
    let row = router.wrapping_add(thread::block_idx_x() as usize * length as usize);
    let parts: Shared<f32> = shared::dynamic(0, super::MOST * THREADS / 32);
    // SAFETY: the launch has a block for each expert; the vectors are as long as the shape says.
    unsafe {
        let mut first = [[0.0; 4]; EARLY];
        unroll!(for I in 0..4 {
            first[I] = vector(row, id + THREADS * I as u32, vectors);
        });
        pdl::launch_dependents();
        pdl::wait();
        let sums = four(first, row, streams.first.gained.as_ptr(), vectors, mine, sequences);
        unroll!(for S in 0..4 {
            if lane == 0 {
                parts.store((mine + S as u32) * THREADS / 32 + warp, sums[S]);
            }
        });
        if thread::block_idx_x() == 0 && warp == 0 {
            unroll!(for S in 0..4 {
                let sequence = mine + S as u32;
                if sequence < sequences {
                    Choices::new(words.add((sequence * MAX_USED) as usize)).clear(lane);
                }
            });
        }
        finish(parts, streams, out, length, eps, sequences);
    }
}

/// The warp's parts of the logits of four sequences from `sequence` on; those that are not there are the last one's.
#[inline(always)]
unsafe fn four(
    first: [[f32; 4]; EARLY],
    row: *const f32,
    x: *const f32,
    vectors: u32,
    sequence: u32,
    sequences: u32,
) -> [f32; TOGETHER as usize] {
    let id = thread::thread_idx_x() % THREADS;
    let stream = |s: u32| {
        let sequence = (sequence + s).min(sequences - 1);
        x.wrapping_add(sequence as usize * 4 * vectors as usize)
    };
    let streams = [stream(0), stream(1), stream(2), stream(3)];
    let mut sums = [0.0; TOGETHER as usize];
    // SAFETY: the caller's.
    unsafe {
        unroll!(for I in 0..4 {
            unroll!(for S in 0..4 {
                sums[S] = dot(first[I], vector(streams[S], id + THREADS * I as u32, vectors), sums[S]);
            });
        });
        let mut i = id + THREADS * EARLY as u32;
        while i < vectors {
            let w = vector(row, i, vectors);
            unroll!(for S in 0..4 {
                sums[S] = dot(w, vector(streams[S], i, vectors), sums[S]);
            });
            i = rolled(i + THREADS);
        }
    }
    unroll!(for I in 0..5 {
        unroll!(for S in 0..4 {
            sums[S] += warp::shuffle_xor(sums[S], 16 >> I);
        });
    });
    sums
}

/// Adds up the block's parts and stores the logits, a warp a sequence.
#[inline(always)]
unsafe fn finish(parts: Shared<f32>, streams: Streams, out: *mut f32, length: u32, eps: f32, sequences: u32) {
    let (lane, mut sequence) = (warp::lane(), thread::thread_idx_x() / 32);
    // SAFETY: the caller's: an output for each expert of each sequence.
    unsafe {
        let mut squared = squares(&streams, length, sequence, sequences, lane);
        thread::sync_threads();
        while sequence < sequences {
            let scale = squared.inverse_rms(length, eps);
            if lane == 0 {
                let F32x4([a, b, c, d]) = parts.cast::<F32x4>().load(sequence);
                let to = out.add((sequence * thread::grid_dim_x() + thread::block_idx_x()) as usize);
                global::store(to, ((a + b) + (c + d)) * scale);
            }
            sequence = rolled(sequence + thread::block_dim_x() / 32);
            squared = squares(&streams, length, sequence, sequences, lane);
        }
    }
}

/// The launch for `experts` rows of `columns` columns, as long as the streams; `words` are those of the [`Choices`].
///
/// # Errors
/// Columns that are no multiple of 256, no experts, or sequences that a step does not take.
#[cfg(not(target_arch = "nvptx64"))]
pub fn router(
    router: DevicePtr<f32>,
    streams: Streams,
    (out, words): (DevicePtr<f32>, DevicePtr<u64>),
    experts: u32,
    columns: u32,
    eps: f32,
    sequences: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("many_router", columns as usize, 256)?;
    let experts = crate::shape::count("many_router", "experts", experts as usize)?;
    let sequences = super::check("many_router", sequences)?;
    let config = cuda_std::launch::LaunchConfig::new(experts, sequences.div_ceil(TOGETHER) * THREADS)
        .shared(super::MOST * THREADS / 32 * 4)
        .pdl(true);
    Ok(many_router::prepare(
        config, router, streams, out, words, columns, eps, sequences,
    ))
}
