//! Streaming read: how fast this GPU's memory is.
//!
//! **Computes** the wrapping sum of a buffer's 32-bit words, one partial sum a thread, so that no load can be left out.
//!
//! **Moves** 16 bytes a vector, once, past L1, in the form in which the matrix kernels read weights.
//!
//! **Shape of work**: threads stride over the buffer with four independent 16-byte loads each in flight. This is the
//! yardstick: no kernel that reads the same bytes can be faster than this one.
//!
//! **Launch**: [`launch`]; `sums` has one place a thread.

use cuda_std::prelude::*;

/// Loads that a thread keeps in flight.
const IN_FLIGHT: u32 = 4;

#[inline(always)]
fn sum(v: U32x4) -> u32 {
    v.0[0].wrapping_add(v.0[1]).wrapping_add(v.0[2]).wrapping_add(v.0[3])
}

/// Sums a buffer with 16-byte loads: the memory's read bandwidth.
///
/// # Safety
/// `buffer` has `vectors` vectors of 16 bytes, aligned; `sums` has one place a thread of the launch.
#[kernel]
pub unsafe fn stream_read(buffer: *const U32x4, vectors: u32, sums: *mut u32) {
    let id = thread::block_idx_x() * thread::block_dim_x() + thread::thread_idx_x();
    let stride = thread::grid_dim_x() * thread::block_dim_x();
    // SAFETY: i < vectors at each use.
    let load = |i: u32| unsafe { global::load_stream(buffer.add(i as usize)) };
    let (mut i, mut total) = (u64::from(id), 0u32);
    let (stride, vectors) = (u64::from(stride), u64::from(vectors));
    while i + stride * u64::from(IN_FLIGHT - 1) < vectors {
        let at = |k: u64| load((i + k * stride) as u32);
        let (a, b, c, d) = (at(0), at(1), at(2), at(3));
        total = total
            .wrapping_add(sum(a))
            .wrapping_add(sum(b))
            .wrapping_add(sum(c))
            .wrapping_add(sum(d));
        i += stride * u64::from(IN_FLIGHT);
    }
    while i < vectors {
        total = total.wrapping_add(sum(load(i as u32)));
        i += stride;
    }
    // SAFETY: one place for each thread.
    unsafe { global::store(sums.add(id as usize), total) };
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::stream_read;
    use crate::shape::{ShapeError, count};
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};
    use cuda_std::{DevicePtr, U32x4};

    /// Reads `bytes` bytes with `blocks` blocks of `threads` threads; `sums` has room for one word a thread.
    ///
    /// # Errors
    /// When the bytes are no multiple of 16, or the launch is empty.
    pub fn launch(
        buffer: DevicePtr<U32x4>,
        bytes: usize,
        blocks: u32,
        threads: u32,
        sums: DevicePtr<u32>,
    ) -> Result<PreparedLaunch, ShapeError> {
        count("stream_read", "threads", blocks as usize * threads as usize)?;
        if !bytes.is_multiple_of(16) {
            return Err(ShapeError::new(
                "stream_read",
                format!("{bytes} bytes; it takes multiples of 16"),
            ));
        }
        let vectors = count("stream_read", "vectors of 16 bytes", bytes / 16)?;
        Ok(stream_read::prepare(
            LaunchConfig::new(blocks, threads),
            buffer,
            vectors,
            sums,
        ))
    }

    /// The wrapping sum of all words: what the threads' sums add up to.
    pub fn reference(words: &[u32]) -> u32 {
        words.iter().fold(0, |sum, w| sum.wrapping_add(*w))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::{launch, reference};
