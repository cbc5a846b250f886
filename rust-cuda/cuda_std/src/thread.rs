//! Where a thread stands in its block and grid, and the barrier of the whole block.

macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident, $intrinsic:ident, $field:ident[$axis:literal];)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[must_use]
        pub fn $name() -> u32 {
            on! { ptx {
                // SAFETY: reads a special register.
                unsafe { core::arch::nvptx::$intrinsic() as u32 }
            } emu { crate::emu::place().$field[$axis] } }
        }
    )*};
}

registers! {
    /// `%tid.x`.
    thread_idx_x, _thread_idx_x, thread[0];
    /// `%tid.y`.
    thread_idx_y, _thread_idx_y, thread[1];
    /// `%tid.z`.
    thread_idx_z, _thread_idx_z, thread[2];
    /// `%ctaid.x`.
    block_idx_x, _block_idx_x, block[0];
    /// `%ctaid.y`.
    block_idx_y, _block_idx_y, block[1];
    /// `%ctaid.z`.
    block_idx_z, _block_idx_z, block[2];
    /// `%ntid.x`.
    block_dim_x, _block_dim_x, block_dim[0];
    /// `%ntid.y`.
    block_dim_y, _block_dim_y, block_dim[1];
    /// `%ntid.z`.
    block_dim_z, _block_dim_z, block_dim[2];
    /// `%nctaid.x`.
    grid_dim_x, _grid_dim_x, grid_dim[0];
    /// `%nctaid.y`.
    grid_dim_y, _grid_dim_y, grid_dim[1];
    /// `%nctaid.z`.
    grid_dim_z, _grid_dim_z, grid_dim[2];
}

/// The thread's number in its block: x fastest, then y, then z.
#[inline(always)]
#[must_use]
pub fn index_in_block() -> u32 {
    (thread_idx_z() * block_dim_y() + thread_idx_y()) * block_dim_x() + thread_idx_x()
}

/// The block's number in the grid: x fastest, then y, then z.
#[inline(always)]
#[must_use]
pub fn block_index() -> u32 {
    (block_idx_z() * grid_dim_y() + block_idx_y()) * grid_dim_x() + block_idx_x()
}

/// The thread's number along x in the whole grid.
#[inline(always)]
#[must_use]
pub fn index_1d() -> u32 {
    block_idx_x() * block_dim_x() + thread_idx_x()
}

/// Threads along x in the whole grid: the step of a grid-stride loop.
#[inline(always)]
#[must_use]
pub fn grid_size_1d() -> u32 {
    grid_dim_x() * block_dim_x()
}

/// Whether this is the first thread of the whole grid.
#[inline(always)]
#[must_use]
pub fn first() -> bool {
    block_index() == 0 && index_in_block() == 0
}

/// `barrier.sync.aligned 0`: waits for all threads of the block that have not exited, and makes
/// what they wrote to shared and global memory visible to each other.
///
/// All of them must reach the same call: the emulator reports where they do not.
#[inline(always)]
#[track_caller]
pub fn sync_threads() {
    on! { ptx {
        // SAFETY: a barrier; convergence is the caller's contract.
        unsafe { crate::llvm::barrier_all(0) }
    } emu { crate::emu::block_barrier(0, None, false); } }
}

/// `barrier.red.popc.aligned.u32 0`: [`sync_threads`], and for how many threads `predicate` holds.
#[inline(always)]
#[track_caller]
pub fn sync_threads_count(predicate: bool) -> u32 {
    on! { ptx {
        // SAFETY: a barrier; convergence is the caller's contract.
        unsafe { crate::llvm::barrier_popc(0, predicate) as u32 }
    } emu { crate::emu::block_barrier(0, None, predicate).holds } }
}

/// `barrier.red.and.aligned.pred 0`: [`sync_threads`], and whether `predicate` holds for all threads.
#[inline(always)]
#[track_caller]
pub fn sync_threads_and(predicate: bool) -> bool {
    on! { ptx {
        // SAFETY: a barrier; convergence is the caller's contract.
        unsafe { crate::llvm::barrier_and(0, predicate) }
    } emu { let r = crate::emu::block_barrier(0, None, predicate); r.holds == r.threads } }
}

/// `barrier.red.or.aligned.pred 0`: [`sync_threads`], and whether `predicate` holds for any thread.
#[inline(always)]
#[track_caller]
pub fn sync_threads_or(predicate: bool) -> bool {
    on! { ptx {
        // SAFETY: a barrier; convergence is the caller's contract.
        unsafe { crate::llvm::barrier_or(0, predicate) }
    } emu { crate::emu::block_barrier(0, None, predicate).holds > 0 } }
}

/// Leaves the comment in the PTX that `cuda_builder` turns into `.maxnreg N`: what `#[kernel(registers = N)]` calls.
#[doc(hidden)]
#[inline(always)]
pub fn limit_registers<const N: u32>() {
    on! { ptx {
        // SAFETY: a comment.
        unsafe { core::arch::asm!("// cuda_std: maxnreg {n}", n = const N, options(nomem, nostack, preserves_flags)) }
    } emu {} }
}

/// Reads a kernel's parameter now, before it is needed. Parameters lie in memory, a 64-byte line at a time: the first use
/// of a line stops the thread for as long as that takes.
#[inline(always)]
pub fn touch(parameter: u32) {
    on! { ptx {
        // SAFETY: traps at no value that a caller passes.
        unsafe { core::arch::asm!("{{ .reg .pred p; setp.eq.u32 p, {x}, 0x7fedcba9; @p trap; }}", x = in(reg32) parameter, options(nostack)) }
    } emu { let _ = parameter; } }
}
