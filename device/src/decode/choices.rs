//! The chosen experts, passed from one launch to the next while it runs.
//!
//! `down` can have its weights on the way long before `gateup` is through, but must know the experts, and to choose them
//! takes longer than to read them. So the first launch of a layer clears a word for each rank, one block of `gateup`
//! fills them as soon as it has chosen, and `down` looks for them, until `gateup` has ended if need be. Each word is whole
//! or empty, so no other memory has to be ordered with it.

use super::topk::Chosen;
use cuda_std::prelude::*;
use cuda_std::unroll::stepped;

/// Ranks at most.
pub const MAX_USED: u32 = 32;

/// Times that a launch looks for the words before it waits for them: some ten microseconds.
const LOOKS: u32 = 32;

/// A word for each of the 32 ranks: 0, or `weight bits << 32 | expert + 1`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Choices(DevicePtr<u64>);

impl Choices {
    /// The words at `words`, [`MAX_USED`] of them.
    #[must_use]
    pub const fn new(words: DevicePtr<u64>) -> Self {
        Self(words)
    }

    /// Where they lie.
    #[cfg(not(target_arch = "nvptx64"))]
    #[must_use]
    pub const fn words(self) -> DevicePtr<u64> {
        self.0
    }

    /// The lane's word.
    #[inline(always)]
    fn word(self, lane: u32) -> *mut u64 {
        self.0.as_mut_ptr().wrapping_add(lane as usize)
    }

    /// The expert of `rank` and one more, if it has been told; else 0.
    ///
    /// # Safety
    /// `rank` is below [`MAX_USED`].
    #[inline(always)]
    pub(super) unsafe fn told(self, rank: u32) -> u32 {
        // SAFETY: the caller's.
        unsafe { atomic::gpu::load_relaxed(self.word(rank)) as u32 }
    }

    /// Empties all words. All lanes of a warp call this together, behind the wait.
    ///
    /// # Safety
    /// No other launch uses the words meanwhile.
    #[inline(always)]
    pub(super) unsafe fn clear(self, lane: u32) {
        // SAFETY: the caller's.
        unsafe { atomic::gpu::store_relaxed(self.word(lane), 0u64) }
    }

    /// Fills the words of the `used` first ranks: the lane of a rank brings it.
    ///
    /// # Safety
    /// No other block fills them.
    #[inline(always)]
    pub(super) unsafe fn publish(self, chosen: Chosen, used: u32, lane: u32) {
        if lane < used {
            let word = u64::from(chosen.weight.to_bits()) << 32 | u64::from(chosen.expert + 1);
            // SAFETY: the caller's.
            unsafe { atomic::gpu::store_relaxed(self.word(lane), word) }
        }
    }

    /// The lane's rank, when all `used` words are there: at the latest when the launch that fills them has ended. All
    /// lanes of a warp call this together.
    ///
    /// # Safety
    /// There is a word for each lane.
    #[inline(always)]
    pub(super) unsafe fn find(self, used: u32, lane: u32) -> Chosen {
        let mut look = 0;
        loop {
            // SAFETY: the caller's.
            let word = unsafe { atomic::gpu::load_relaxed(self.word(lane)) };
            if warp::all(lane >= used || word != 0) || look > LOOKS {
                return Chosen {
                    expert: (word as u32).saturating_sub(1),
                    weight: f32::from_bits((word >> 32) as u32),
                };
            }
            look = stepped(look + 1);
            if look == LOOKS {
                pdl::wait();
                look = stepped(look + 1);
            }
        }
    }
}
