//! The index of the largest value: greedy choice of a token.
//!
//! **Computes** the lowest index i with `x[i] = max x`. NaN never wins (a vector of NaN gives 0), −0 equals +0.
//!
//! **Moves** 4 bytes a value, once.
//!
//! **Shape of work**: each block of 256 threads takes every grid-th run of 256 values and leaves one candidate; a second
//! launch of one block picks among at most [`MAX_BLOCKS`] candidates. A candidate is a 64-bit key: the value's bits in an
//! order-preserving form above the inverted index, so that one integer maximum decides both value and tie, in any order.
//!
//! **Launch**: [`launches`]: first `argmax_blocks`, then `argmax_final`. PDL allowed for both.

use cuda_std::prelude::*;

/// Blocks of the first launch at most, and threads of the second.
pub const MAX_BLOCKS: u32 = 256;
const THREADS: u32 = 256;
const WARPS: u32 = THREADS / 32;

/// Orders floats as unsigned integers: NaN is 0, −0 and +0 are the same.
#[inline(always)]
pub(crate) fn key(x: f32) -> u32 {
    if x.is_nan() {
        return 0;
    }
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 0x8000_0000 }
}

/// Value and index in one number: the larger value is larger, then the lower index.
#[inline(always)]
pub(crate) fn candidate(key: u32, index: u32) -> u64 {
    u64::from(key) << 32 | u64::from(!index)
}

/// The largest candidate of the warp, in every lane.
#[inline(always)]
pub(crate) fn warp_best(mine: u64) -> u64 {
    let high = warp::redux_max(warp::FULL, (mine >> 32) as u32);
    let low = if (mine >> 32) as u32 == high { mine as u32 } else { 0 };
    u64::from(high) << 32 | u64::from(warp::redux_max(warp::FULL, low))
}

/// The largest candidate of the block's 256 threads, in thread 0.
#[inline(always)]
fn block_best(mine: u64) -> u64 {
    let (id, shared) = (thread::thread_idx_x(), shared::dynamic::<u64>(0, WARPS));
    let best = warp_best(mine);
    if id & 31 == 0 {
        shared.store(id / 32, best);
    }
    thread::sync_threads();
    if id >= 32 {
        return 0;
    }
    warp_best(if id < WARPS { shared.load(id) } else { 0 })
}

/// Each block's best candidate of a vector.
///
/// # Safety
/// The launch is the first of [`launches`]: x has n values, candidates one place a block.
#[kernel]
pub unsafe fn argmax_blocks(x: *const f32, n: u32, candidates: *mut u64) {
    let mut i = thread::block_idx_x() * THREADS + thread::thread_idx_x();
    pdl::launch_dependents();
    pdl::wait();
    let mut best = candidate(0, 0);
    while i < n {
        // SAFETY: i < n.
        let mine = candidate(key(unsafe { global::load(x.add(i as usize)) }), i);
        best = if mine > best { mine } else { best };
        i += thread::grid_dim_x() * THREADS;
    }
    let best = block_best(best);
    if thread::thread_idx_x() == 0 {
        // SAFETY: one place for each block.
        unsafe { global::store(candidates.add(thread::block_idx_x() as usize), best) };
    }
}

/// The index of the best of up to 256 candidates.
///
/// # Safety
/// The launch is the second of [`launches`]: there are `n` candidates, `n` ≤ 256.
#[kernel]
pub unsafe fn argmax_final(candidates: *const u64, n: u32, index: *mut u32) {
    let id = thread::thread_idx_x();
    pdl::launch_dependents();
    pdl::wait();
    let mine = if id < n {
        // SAFETY: id < n.
        unsafe { global::load(candidates.add(id as usize)) }
    } else {
        0
    };
    let best = block_best(mine);
    if id == 0 {
        // SAFETY: one place.
        unsafe { global::store(index, !(best as u32)) };
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::{MAX_BLOCKS, THREADS, WARPS, argmax_blocks, argmax_final};
    use crate::shape::{ShapeError, count};
    use cuda_std::DevicePtr;
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};

    /// The two launches that write the index of the largest of `n` values of `x` to `index`; `candidates` is room for
    /// [`MAX_BLOCKS`] of them.
    ///
    /// # Errors
    /// When there are no values.
    pub fn launches(
        x: DevicePtr<f32>,
        n: usize,
        candidates: DevicePtr<u64>,
        index: DevicePtr<u32>,
    ) -> Result<[PreparedLaunch; 2], ShapeError> {
        let n = count("argmax_blocks", "values", n)?;
        let blocks = n.div_ceil(THREADS).min(MAX_BLOCKS);
        let config = |blocks| LaunchConfig::new(blocks, THREADS).shared(8 * WARPS).pdl(true);
        let (first, last) = (config(blocks), config(1));
        Ok([
            argmax_blocks::prepare(first, x, n, candidates),
            argmax_final::prepare(last, candidates, blocks, index),
        ])
    }

    /// The lowest index of the largest value; NaN never wins.
    pub fn reference(x: &[f32]) -> u32 {
        let mut best: Option<usize> = None;
        for (i, v) in x.iter().enumerate().filter(|(_, v)| !v.is_nan()) {
            best = best.filter(|&b| x[b] >= *v).or(Some(i));
        }
        best.unwrap_or(0) as u32
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::{launches, reference};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_floats_do() {
        let rising = [f32::NEG_INFINITY, -2.0, -1e-40, 0.0, 1e-40, 1.0, f32::INFINITY];
        assert!(rising.windows(2).all(|w| key(w[0]) < key(w[1])));
        assert_eq!(key(-0.0), key(0.0));
        assert!(key(f32::NAN) < key(f32::NEG_INFINITY) && key(-f32::NAN) == 0);
    }

    #[test]
    fn the_reference_takes_the_lowest_of_equals() {
        assert_eq!(reference(&[f32::NAN, 1.0, 3.0, 3.0]), 2);
        assert_eq!(reference(&[f32::NAN; 3]), 0);
        assert_eq!(reference(&[-0.0, 0.0]), 0);
    }
}
