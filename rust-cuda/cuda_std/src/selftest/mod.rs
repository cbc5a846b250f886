//! A kernel for each group of operations, with what it must compute.
//!
//! All have one shape: a block of 64 threads (16 × 2 × 2), 4 words of input and 8 of output for each
//! thread; those of clusters have as many such blocks as a cluster has. [`CASES`] runs under any launcher: in the emulator among this crate's tests, on a GPU from
//! the PTX that `--features selftest` adds to this crate's.

#[cfg(not(target_arch = "nvptx64"))]
mod case;
mod clusters;
mod copies;
mod exchange;
mod matrices;
mod numbers;
mod stores;

#[cfg(not(target_arch = "nvptx64"))]
pub use case::{CASES, Case, Mismatch, Words, input};
pub use clusters::*;
pub use copies::*;
pub use exchange::*;
pub use matrices::*;
pub use numbers::*;
pub use stores::*;

/// Threads of the block.
pub const THREADS: usize = 64;

/// This thread's input.
///
/// # Safety
/// `input` has 4 words for each thread.
#[inline(always)]
unsafe fn read(input: *const u32) -> [u32; 4] {
    let at = crate::thread::index_in_block() as usize * 4;
    // SAFETY: the caller's.
    unsafe {
        [
            *input.add(at),
            *input.add(at + 1),
            *input.add(at + 2),
            *input.add(at + 3),
        ]
    }
}

/// Sets this thread's output.
///
/// # Safety
/// `output` has 8 words for each thread.
#[inline(always)]
unsafe fn write(output: *mut u32, words: [u32; 8]) {
    let at = crate::thread::index_in_block() as usize * 8;
    // SAFETY: the caller's.
    unsafe {
        crate::unroll!(for I in 0..8 {
            *output.add(at + I) = words[I];
        });
    }
}
