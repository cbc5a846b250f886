//! Where tiles are read from.

use cuda_std::Word;
use cuda_std::prelude::*;

/// A tile's place in memory.
pub trait Source: Copy {
    /// The value at byte `at`.
    ///
    /// # Safety
    /// The tile has it, aligned.
    unsafe fn read<T: Word>(self, at: usize) -> T;

    /// The lane's 16 bytes of a vector that begins at `at`.
    ///
    /// # Safety
    /// The tile is whole, aligned to 16 bytes, and has this vector.
    #[inline(always)]
    unsafe fn vector(self, at: usize, lane: u32) -> [u32; 4] {
        // SAFETY: the caller's.
        unsafe { self.read::<U32x4>(at + 16 * lane as usize).0 }
    }

    /// The lane's 8 bytes of 256 that begin at `at`.
    ///
    /// # Safety
    /// As [`vector`](Self::vector).
    #[inline(always)]
    unsafe fn pair(self, at: usize, lane: u32) -> [u32; 2] {
        // SAFETY: the caller's.
        unsafe { self.read::<U32x2>(at + 8 * lane as usize).0 }
    }
}

/// Device memory, past L1 and first to leave L2: weights are read once.
impl Source for *const u8 {
    #[inline(always)]
    unsafe fn read<T: Word>(self, at: usize) -> T {
        // SAFETY: the caller's.
        unsafe { global::load_once(self.add(at).cast::<T>()) }
    }
}

/// Shared memory.
impl Source for Shared<u8> {
    #[inline(always)]
    unsafe fn read<T: Word>(self, at: usize) -> T {
        self.slice(at as u32, size_of::<T>() as u32).cast::<T>().load(0)
    }
}
