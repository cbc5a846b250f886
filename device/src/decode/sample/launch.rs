//! Shapes of the sampler's launches (host).

use super::{DRAW_THREADS, Marks, SampleShape, StepState, THREADS, TILE, list_words, sample_draw, sample_tiles};
use crate::shape::ShapeError;
use cuda_std::launch::{LaunchConfig, PreparedLaunch};
use cuda_std::prelude::*;

/// Where the sampler reads and writes, in device memory.
#[derive(Clone, Copy, Debug)]
pub struct SampleBuffers {
    /// The logits.
    pub logits: DevicePtr<f32>,
    /// The last [`SampleShape::recent`] tokens; the token at position `p` is entry `p` modulo their number. Entries
    /// without a token hold `u32::MAX`.
    pub recent: DevicePtr<u32>,
    /// The suppressed tokens.
    pub suppressed: DevicePtr<u32>,
    /// [`SampleShape::list_entries`] words.
    pub lists: DevicePtr<u64>,
    /// The step state.
    pub state: DevicePtr<StepState>,
    /// Where tokens go: see [`ring_entry`](crate::decode::state::ring_entry).
    pub ring: DevicePtr<u64>,
    /// Entries of the ring, a power of two.
    pub ring_length: u32,
}

impl SampleShape {
    /// Candidates at most.
    pub const MAX_TOP_K: u32 = 256;

    fn tiles(&self) -> u32 {
        self.vocabulary.div_ceil(TILE)
    }

    /// Words of workspace that the launches need.
    #[must_use]
    pub fn list_entries(&self) -> usize {
        (self.tiles() * list_words(self.top_k)) as usize
    }

    /// The most words of workspace that any settings need among `vocabulary` tokens.
    #[must_use]
    pub const fn most_list_entries(vocabulary: u32) -> usize {
        (vocabulary.div_ceil(TILE) * list_words(Self::MAX_TOP_K)) as usize
    }

    fn draw_bytes(&self) -> u32 {
        8 * self.tiles() * list_words(self.top_k) + 4 * list_words(self.top_k)
    }

    /// Whether the launches take the settings.
    ///
    /// # Errors
    /// No candidates, or too many of them.
    pub fn check(&self) -> Result<(), ShapeError> {
        let refuse = |rule| Err(ShapeError::new("sample", rule));
        if self.top_k == 0 || self.top_k > Self::MAX_TOP_K {
            return refuse(format!("top-k of {}; it takes 1 to {}", self.top_k, Self::MAX_TOP_K));
        }
        // What every supported GPU gives a block.
        if self.vocabulary == 0 || self.draw_bytes() > 99 * 1024 {
            return refuse(format!(
                "top-k of {} among {} tokens; the lists do not fit shared memory",
                self.top_k, self.vocabulary
            ));
        }
        Ok(())
    }
}

/// The two launches that end a sampled step.
///
/// # Errors
/// No candidates or too many of them, or a ring whose length is no power of two.
pub fn sample(shape: SampleShape, b: SampleBuffers) -> Result<[PreparedLaunch; 2], ShapeError> {
    shape.check()?;
    if !b.ring_length.is_power_of_two() {
        let rule = format!("a ring of {} entries; it takes a power of two", b.ring_length);
        return Err(ShapeError::new("sample", rule));
    }
    let tiles = LaunchConfig::new(shape.tiles(), THREADS)
        .shared(8 * TILE + 8 * Marks::WORDS)
        .pdl(true);
    let draw = LaunchConfig::new(1, DRAW_THREADS).shared(shape.draw_bytes()).pdl(true);
    Ok([
        sample_tiles::prepare(tiles, b.logits, b.recent, b.suppressed, b.lists, shape),
        sample_draw::prepare(
            draw,
            b.lists,
            shape.tiles(),
            b.recent,
            b.state,
            b.ring,
            b.ring_length,
            shape,
        ),
    ])
}
