//! The end of a greedy step: the best token of the blocks' bests becomes the next step's token.
//!
//! Sets the step state's token, advances its position and step, and leaves the token in the ring for the host. So a
//! captured graph of a step, replayed, feeds itself. Where no logit is a number the ring gets [`NO_TOKEN`].
//!
//! **Bytes**: 8 a candidate. **Shape of the work**: one block of 256 threads. **Launch**: [`advance`](fn@advance).

use super::head::Best;
use super::state::{NO_TOKEN, StepState, ring_entry};
use cuda_std::prelude::*;

/// Threads of the block.
const THREADS: u32 = 256;

/// The best of `count` candidates becomes the next token.
///
/// Prepare it with [`advance`](fn@advance).
///
/// # Safety
/// The arguments of a launch that [`advance`](fn@advance) prepared.
#[kernel(pdl)]
pub unsafe fn decode_advance(best: *const Best, count: u32, state: *mut StepState, ring: *mut u64, ring_length: u32) {
    let id = thread::thread_idx_x();
    pdl::wait();
    let mut mine = Best::NONE;
    let mut i = id;
    // SAFETY: the launch's contract: `count` candidates.
    unsafe {
        while i < count {
            mine = mine.or(Best::load(best.add(i as usize)));
            i += THREADS;
        }
    }
    let best = mine.of_block();
    if id == 0 {
        // SAFETY: the launch's contract.
        unsafe { emit(best.emitted(), state, ring, ring_length) };
    }
}

/// Makes `token` the next step's and leaves it in the ring; [`NO_TOKEN`] makes token 0 the next step's.
///
/// # Safety
/// `state` and `ring` (of `ring_length` entries, a power of two) are writable, and this thread alone writes them.
#[inline(always)]
pub(super) unsafe fn emit(token: u32, state: *mut StepState, ring: *mut u64, ring_length: u32) {
    // SAFETY: the caller's.
    unsafe {
        let U32x4([_, position, step, draws]) = global::load(state.cast::<U32x4>());
        let next = if token == NO_TOKEN { 0 } else { token };
        global::store(
            state.cast::<U32x4>(),
            U32x4([next, position + 1, step.wrapping_add(1), draws]),
        );
        global::store_volatile(ring.add((step & (ring_length - 1)) as usize), ring_entry(step, token));
    }
}

/// The launch that ends a greedy step: `count` candidates, a ring of `ring_length` entries in memory that the host reads
/// (a power of two, so that the step counter may wrap).
///
/// # Errors
/// No candidates, or a ring whose length is no power of two.
#[cfg(not(target_arch = "nvptx64"))]
pub fn advance(
    best: DevicePtr<Best>,
    count: u32,
    state: DevicePtr<StepState>,
    ring: DevicePtr<u64>,
    ring_length: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let count = crate::shape::count("decode_advance", "candidates", count as usize)?;
    if !ring_length.is_power_of_two() {
        let rule = format!("a ring of {ring_length} entries; it takes a power of two");
        return Err(crate::shape::ShapeError::new("decode_advance", rule));
    }
    let config = cuda_std::launch::LaunchConfig::new(1, THREADS)
        .shared(Best::BLOCK_BYTES)
        .pdl(true);
    Ok(decode_advance::prepare(config, best, count, state, ring, ring_length))
}
