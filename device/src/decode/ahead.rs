//! Weights that a later launch will read, brought into L2 while this one waits for something else.

use cuda_std::prelude::*;

/// Bytes that a launch brings into L2 for a later one; none where `bytes` is 0.
///
/// A stage that waits for a chain of small steps leaves the memory idle; a later stage's static weights can come over
/// meanwhile. L2 must have room for them until they are used.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Ahead {
    /// The first byte.
    pub from: DevicePtr<u8>,
    /// How many.
    pub bytes: u64,
}

/// Bytes that one prefetch brings.
const LINE: u64 = 128;

impl Ahead {
    /// Nothing.
    pub const NONE: Self = Self {
        from: DevicePtr::null(),
        bytes: 0,
    };

    /// Issues the prefetches, shared by all threads of the grid.
    #[inline(always)]
    pub fn run(&self) {
        let thread = thread::block_index() * thread::block_dim_x() + thread::thread_idx_x();
        let threads = thread::block_dim_x() * thread::grid_dim_x() * thread::grid_dim_y();
        self.lines(thread, threads);
    }

    /// Issues every `threads`-th line from `thread` on.
    #[inline(always)]
    pub fn lines(&self, thread: u32, threads: u32) {
        let mut at = thread as u64 * LINE;
        while at < self.bytes {
            global::prefetch_l2(self.from.byte_add(at as usize).as_ptr());
            at += threads as u64 * LINE;
        }
    }
}
