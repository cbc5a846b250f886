//! Choosing the next token on the device: what the host's sampler does, to the bit.
//!
//! 1. suppressed tokens, NaN and -∞ leave the choice;
//! 2. recent tokens' logits are divided (positive) or multiplied (negative) by the repeat penalty;
//! 3. at temperature 0 the highest logit wins, the lowest token among equals;
//! 4. else the `top_k` best, in order of falling logit and rising token, are the candidates;
//! 5. of these, the first whose weights (softmax at temperature 1) sum to `top_p` of all;
//! 6. of these, those at least `min_p` times as likely as the best;
//! 7. softmax at the temperature, and one number of a counter-based generator ([`random`]) looked up in the running sum.
//!
//! Sums run in f32 in the order of the candidates, and the exponential is the host's ([`random::exp`]): so the same logits
//! and seed give the same token on both.
//!
//! **Shape of the work**, two launches behind the head. [`sample_tiles`](fn@sample_tiles): a block sorts 4,096 logits, with
//! their tokens, as 64-bit words in shared memory and keeps the best; [`sample_draw`](fn@sample_draw): one block merges the
//! tiles' lists pairwise, makes the choice, and ends the step as [`advance`](super::advance) does.
//!
//! **Bytes**: 4 a logit; the rest is small. **Launch**: [`sample`].

mod draw;
#[cfg(not(target_arch = "nvptx64"))]
mod launch;
pub mod random;
mod sort;

#[cfg(not(target_arch = "nvptx64"))]
pub use launch::{SampleBuffers, sample};

use super::advance::emit;
use super::state::{NO_TOKEN, StepState};
use super::topk;
use cuda_std::prelude::*;

/// Logits of a tile.
pub const TILE: u32 = 4096;
/// Threads of a tile's block.
const THREADS: u32 = 1024;
/// Threads of the block that draws.
const DRAW_THREADS: u32 = 512;

/// The sampler's settings, as the kernels take them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct SampleShape {
    /// Logits.
    pub vocabulary: u32,
    /// Candidates: 1 to 256.
    pub top_k: u32,
    /// Divides the logits; 0 or less is greedy.
    pub temperature: f32,
    /// Keeps the first candidates whose weights sum to this part of all; 1 or more keeps all.
    pub top_p: f32,
    /// Natural logarithm of the least part of the best one's probability; -∞ keeps all.
    pub ln_min_p: f32,
    /// Makes recent tokens less likely; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Entries of the ring of recent tokens.
    pub recent: u32,
    /// Tokens that are never chosen.
    pub suppressed: u32,
    /// Key of the random numbers, low and high half.
    pub seed: [u32; 2],
}

/// A candidate as one word whose unsigned order is the order of choice: the logit's key above, the token's complement
/// below. 0 is no candidate.
#[inline(always)]
fn candidate(logit: f32, token: u32) -> u64 {
    if logit > f32::NEG_INFINITY {
        (topk::key(logit) as u64) << 32 | !token as u64
    } else {
        0
    }
}

/// The logit and the token of a candidate.
#[inline(always)]
fn parts(candidate: u64) -> (f32, u32) {
    (topk::logit((candidate >> 32) as u32), !(candidate as u32))
}

/// The words of a list: a power of two, at least a warp's.
#[inline(always)]
const fn list_words(top_k: u32) -> u32 {
    let words = top_k.next_power_of_two();
    if words < 32 { 32 } else { words }
}

/// Which tokens of a tile are in a list: a bit each.
#[derive(Clone, Copy)]
struct Marks(Shared<u32>);

impl Marks {
    const WORDS: u32 = TILE / 32;

    #[inline(always)]
    fn clear(self) {
        let mut i = thread::thread_idx_x();
        while i < Self::WORDS {
            self.0.store(i, 0);
            i += THREADS;
        }
    }

    /// Marks those of the `count` tokens at `tokens` that are in the tile at `first`.
    #[inline(always)]
    unsafe fn mark(self, tokens: *const u32, count: u32, first: u32) {
        let mut i = thread::thread_idx_x();
        while i < count {
            // SAFETY: the list has `count` tokens.
            let at = unsafe { global::load(tokens.add(i as usize)) }.wrapping_sub(first);
            if at < TILE {
                self.0.fetch_or(at / 32, 1 << (at % 32));
            }
            i += THREADS;
        }
    }

    #[inline(always)]
    fn has(self, at: u32) -> bool {
        self.0.load(at / 32) >> (at % 32) & 1 != 0
    }
}

/// The best candidates of each tile of 4,096 logits, in order.
///
/// Prepare it with [`sample`].
///
/// # Safety
/// The arguments of a launch that [`sample`] prepared.
#[kernel(pdl)]
pub unsafe fn sample_tiles(
    logits: *const f32,
    recent: *const u32,
    suppressed: *const u32,
    lists: *mut u64,
    shape: SampleShape,
) {
    let words: Shared<u64> = shared::dynamic(0, TILE);
    let (is_recent, is_suppressed) = (
        Marks(shared::dynamic(8 * TILE, Marks::WORDS)),
        Marks(shared::dynamic(8 * TILE + 4 * Marks::WORDS, Marks::WORDS)),
    );
    let (first, keep) = (thread::block_idx_x() * TILE, list_words(shape.top_k));
    is_recent.clear();
    is_suppressed.clear();
    thread::sync_threads();
    pdl::launch_dependents();
    pdl::wait();
    // SAFETY: the launch's contract.
    unsafe {
        is_recent.mark(recent, shape.recent, first);
        is_suppressed.mark(suppressed, shape.suppressed, first);
        thread::sync_threads();
        let mut at = thread::thread_idx_x();
        while at < TILE {
            let word = if first + at < shape.vocabulary && !is_suppressed.has(at) {
                let logit = global::load(logits.add((first + at) as usize));
                candidate(adjusted(logit, is_recent.has(at), &shape), first + at)
            } else {
                0
            };
            words.store(at, word);
            at += THREADS;
        }
        sort::descending(words, TILE, THREADS);
        let mut i = thread::thread_idx_x();
        while i < keep {
            let word = if i < shape.top_k { words.load(i) } else { 0 };
            global::store(lists.add((thread::block_idx_x() * keep + i) as usize), word);
            i += THREADS;
        }
    }
}

/// A logit behind the repeat penalty. Greedy choice takes both zeros as equal, so there they become one.
#[inline(always)]
fn adjusted(logit: f32, recent: bool, shape: &SampleShape) -> f32 {
    let logit = match (recent, logit > 0.0) {
        (false, _) => logit,
        (true, true) => float::div(logit, shape.repeat_penalty),
        (true, false) => logit * shape.repeat_penalty,
    };
    if shape.temperature <= 0.0 { logit + 0.0 } else { logit }
}

/// The next token, drawn from the tiles' candidates; ends the step.
///
/// Prepare it with [`sample`].
///
/// # Safety
/// The arguments of a launch that [`sample`] prepared.
#[kernel(pdl)]
pub unsafe fn sample_draw(
    lists: *const u64,
    tiles: u32,
    recent: *mut u32,
    state: *mut StepState,
    ring: *mut u64,
    ring_length: u32,
    shape: SampleShape,
) {
    let keep = list_words(shape.top_k);
    let words: Shared<u64> = shared::dynamic(0, tiles * keep);
    let weights: Shared<f32> = shared::dynamic(8 * tiles * keep, keep);
    pdl::wait();
    // SAFETY: the launch's contract; only thread 0 writes the state, the ring and the recent tokens.
    unsafe {
        let mut i = thread::thread_idx_x();
        while i < tiles * keep {
            words.store(i, global::load(lists.add(i as usize)));
            i += DRAW_THREADS;
        }
        thread::sync_threads();
        sort::merge_lists(words, tiles, keep, DRAW_THREADS);
        let (step, draws) = (
            global::load(&raw const (*state).step),
            global::load(&raw const (*state).draws),
        );
        let token = draw::choose(words, weights, &shape, step.wrapping_add(draws));
        if thread::thread_idx_x() == 0 {
            if shape.recent > 0 {
                let position = global::load(&raw const (*state).position) + 1;
                global::store(recent.add((position % shape.recent.max(1)) as usize), token);
            }
            emit(token, state, ring, ring_length);
        }
    }
}
