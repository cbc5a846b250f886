//! Named barriers: some of a block's warps wait for each other.
//!
//! A barrier is one of 16 by its number; 0 is [`crate::thread::sync_threads`]'s. `threads` counts
//! those that take part, in whole warps.

/// `barrier.sync.aligned id, threads`: waits until `threads` threads have arrived or wait.
#[inline(always)]
#[track_caller]
pub fn sync(id: u32, threads: u32) {
    on! { ptx {
        // SAFETY: a barrier; convergence is the caller's contract.
        unsafe { crate::llvm::barrier_count(id as i32, threads as i32) }
    } emu { crate::emu::block_barrier(id, Some(threads), false); } }
}

/// `barrier.arrive.aligned id, threads`: arrives without waiting: the producer's half of [`sync`].
#[inline(always)]
#[track_caller]
pub fn arrive(id: u32, threads: u32) {
    on! { ptx {
        // SAFETY: a barrier; convergence is the caller's contract.
        unsafe { crate::llvm::barrier_arrive(id as i32, threads as i32) }
    } emu { crate::emu::block_barrier_arrive(id, threads); } }
}
