//! The end of a greedy step of several sequences: [`advance`](crate::decode::advance) for each.
//!
//! The best token of the blocks' bests becomes the next step's: in `tokens`, where the embedding reads it, and in the
//! sequence's state, whose position and step move on. The host finds it in the ring, and [`NO_TOKEN`] where no logit is a
//! number: that of sequence s and step i at `i % SLOTS · MOST + s`.
//!
//! **Shape of the work**: a block a sequence. **Launch**: [`advance`].

use super::MOST;
use crate::decode::head::Best;
use crate::decode::state::{NO_TOKEN, StepState, ring_entry};
use cuda_std::prelude::*;

/// Steps whose tokens the ring holds.
pub const SLOTS: u32 = 4;
/// Threads of a block.
const THREADS: u32 = 256;

/// The best of each sequence's `count` candidates becomes its next token.
///
/// Prepare it with [`advance`].
///
/// # Safety
/// The arguments of a launch that [`advance`] prepared.
#[kernel(pdl)]
pub unsafe fn many_advance(best: *const Best, count: u32, states: *mut StepState, tokens: *mut u32, ring: *mut u64) {
    let (id, sequence) = (thread::thread_idx_x(), thread::block_idx_x() as usize);
    let best = best.wrapping_add(sequence * count as usize);
    pdl::wait();
    let mut mine = Best::NONE;
    let mut i = id;
    // SAFETY: a sequence has `count` candidates, a state, a token and entries of the ring.
    unsafe {
        while i < count {
            mine = mine.or(Best::load(best.add(i as usize)));
            i += THREADS;
        }
        let emitted = mine.of_block().emitted();
        if id == 0 {
            let state = states.add(sequence).cast::<U32x4>();
            let U32x4([_, position, step, draws]) = global::load(state);
            // Arithmetic, not a branch, into which the compiler might double the load above.
            let token = emitted & u32::from(emitted != NO_TOKEN).wrapping_neg();
            global::store(state, U32x4([token, position + 1, step.wrapping_add(1), draws]));
            global::store(tokens.add(sequence), token);
            let slot = (step % SLOTS * MOST) as usize + sequence;
            global::store_volatile(ring.add(slot), ring_entry(step, emitted));
        }
    }
}

/// What a step's end reads and writes, besides the candidates.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct Next {
    /// The state of each sequence.
    pub states: DevicePtr<StepState>,
    /// The tokens that the next step reads.
    pub tokens: DevicePtr<u32>,
    /// `SLOTS · MOST` entries in memory that the host reads.
    pub ring: DevicePtr<u64>,
}

/// The launch that ends a greedy step of `sequences` sequences with `count` candidates each.
///
/// # Errors
/// No candidates, or sequences that a step does not take.
#[cfg(not(target_arch = "nvptx64"))]
pub fn advance(
    best: DevicePtr<Best>,
    count: u32,
    to: Next,
    sequences: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let count = crate::shape::count("many_advance", "candidates", count as usize)?;
    let sequences = super::check("many_advance", sequences)?;
    let config = cuda_std::launch::LaunchConfig::new(sequences, THREADS)
        .shared(Best::BLOCK_BYTES)
        .pdl(true);
    Ok(many_advance::prepare(
        config, best, count, to.states, to.tokens, to.ring,
    ))
}
