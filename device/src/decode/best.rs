//! The likeliest token of each of several rows of logits.
//!
//! `next[r]` is the index of the highest of the `count` logits of row r, the lowest among equals; NaN never wins, and
//! [`NO_TOKEN`](super::state::NO_TOKEN) stands for a row without a number.
//!
//! **Bytes**: the logits, once, from L2. **Shape of the work**: [`BLOCKS`] blocks a row leave a candidate each, then a
//! block a row picks among them. **Launch**: [`best`].

use super::head::Best;
use cuda_std::prelude::*;

/// Blocks of a row, each of which leaves a candidate.
pub const BLOCKS: u32 = 32;
/// Threads of a block.
const THREADS: u32 = 256;

/// The best of each block's logits, rows being `stride` logits apart.
///
/// Prepare it with [`best`].
///
/// # Safety
/// The arguments of a launch that [`best`] prepared.
#[kernel(pdl)]
pub unsafe fn best_of_blocks(logits: *const f32, candidates: *mut Best, count: u32, stride: u32) {
    let (block, row) = (thread::block_idx_x(), thread::block_idx_y());
    let logits = logits.wrapping_add(row as usize * stride as usize);
    let (mut token, mut best) = (block * THREADS + thread::thread_idx_x(), Best::NONE);
    pdl::wait();
    while token < count {
        // SAFETY: the row has the logit.
        let logit = unsafe { global::load(logits.add(token as usize)) };
        best = best.or(Best { logit, token });
        token += BLOCKS * THREADS;
    }
    let best = best.of_block();
    if thread::thread_idx_x() == 0 {
        // SAFETY: a candidate for each block.
        unsafe { best.store(candidates.add((row * BLOCKS + block) as usize)) };
    }
}

/// The best of each row's candidates.
///
/// Prepare it with [`best`].
///
/// # Safety
/// The arguments of a launch that [`best`] prepared.
#[kernel(pdl)]
pub unsafe fn best_of_rows(candidates: *const Best, next: *mut u32) {
    let (row, lane) = (thread::block_idx_x(), warp::lane());
    pdl::wait();
    // SAFETY: a row has a candidate for each lane, and an entry of `next`.
    unsafe {
        let best = Best::load(candidates.add((row * BLOCKS + lane) as usize)).of_warp();
        if lane == 0 {
            global::store(next.add(row as usize), best.emitted());
        }
    }
}

/// The launches that find the best of `count` logits in each of `rows` rows, `stride` logits apart; [`BLOCKS`] candidates
/// and an entry of `next` a row.
///
/// # Errors
/// No rows or no logits.
#[cfg(not(target_arch = "nvptx64"))]
pub fn best(
    logits: DevicePtr<f32>,
    (rows, count, stride): (u32, u32, u32),
    candidates: DevicePtr<Best>,
    next: DevicePtr<u32>,
) -> Result<[cuda_std::launch::PreparedLaunch; 2], crate::shape::ShapeError> {
    use cuda_std::launch::LaunchConfig;
    let rows = crate::shape::count("best_of_blocks", "rows", rows as usize)?;
    let count = crate::shape::count("best_of_blocks", "logits", count as usize)?;
    let blocks = LaunchConfig::shaped([BLOCKS, rows, 1], [THREADS, 1, 1]).shared(Best::BLOCK_BYTES);
    Ok([
        best_of_blocks::prepare(blocks, logits, candidates, count, stride),
        best_of_rows::prepare(LaunchConfig::new(rows, 32), candidates, next),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::state::NO_TOKEN;
    use cuda_std::emu::{Buffer, Emulator};
    use cuda_std::launch::Launcher;

    #[test]
    fn each_row_has_its_own_best() {
        let (count, stride) = (9_000, 9_008);
        // What lies behind a row's logits does not count; of equals the first one wins.
        let mut logits = vec![100.0; 4 * stride];
        for (row, highest) in [8_999, 0, 4_321].into_iter().enumerate() {
            let row = &mut logits[row * stride..][..count];
            row.iter_mut().enumerate().for_each(|(i, x)| *x = -1.0 - (i % 7) as f32);
            row[5] = f32::NAN;
            row[8_999] = 3.0;
            row[highest] = 3.0;
        }
        logits[3 * stride..][..count].fill(f32::NAN);
        let logits = Buffer::from_slice(&logits);
        let candidates = Buffer::<Best>::zeroed(4 * BLOCKS as usize);
        let next = Buffer::<u32>::zeroed(4);
        let shape = (4, count as u32, stride as u32);
        for launch in best(logits.ptr(), shape, candidates.ptr(), next.ptr()).unwrap() {
            Emulator::default().launch(&launch).unwrap();
        }
        assert_eq!(next.as_slice(), [8_999, 0, 4_321, NO_TOKEN]);
        assert!(best(logits.ptr(), (0, 1, 1), candidates.ptr(), next.ptr()).is_err());
    }
}
