//! The emulator: runs kernels on the host, one stackful coroutine for each GPU thread.
//!
//! Threads of a block take turns; a thread runs until it meets others (a barrier, a shuffle, a vote,
//! an `mma`) and goes on when they have come. The blocks of a cluster run together, clusters (blocks,
//! where there are none) one after the other. A seed other than 0 permutes the order of clusters, warps and lanes, always the same way for the same seed, so that a
//! missing barrier shows in some order.
//!
//! What it reports, as a [`Fault`] with the kernel, the block and the thread:
//!
//! - threads that meet at different places, or wait for one another for ever;
//! - shared memory: accesses outside, bytes read before anything was written, and races: two threads,
//!   one of them writing, and no barrier, warp operation, or mbarrier between;
//! - shared memory of another block: accesses before it is known to run, or that it does not know to be over
//!   when it ends; signals that are not waited for at the cluster's scope;
//! - global memory: accesses outside a [`Buffer`] (guard pages), misaligned vector accesses, null;
//! - a kernel declared to wait for the launch before it that does not, or the reverse;
//! - panics of the kernel itself: overflow, array bounds, assertions;
//! - outputs not written: [`Buffer::check_written`].
//!
//! What it does not: races in global memory; waiting for a block of another cluster (reported as a deadlock);
//! the hardware's rounding inside an `mma` to f32 and in `…_approx` instructions.
//!
//! Race detection follows barriers at the grain of warps, and remembers the last write and the last
//! two readers of each byte: it reports no false race, and misses some among lanes of one warp.

mod asynchronous;
mod block;
mod buffer;
mod clocks;
mod cluster;
mod collective;
mod context;
mod emulator;
mod fault;
mod lanes;
mod matrix;
mod memory;
mod order;
mod remote;
mod rendezvous;
mod trap;

pub use buffer::{Buffer, Guarded, OutOfBuffer, Unwritten, read_bytes, write_bytes};
pub use emulator::Emulator;
pub use fault::{Fault, FaultKind};

pub(crate) use asynchronous::{
    copy_async, copy_bulk, copy_commit, copy_wait, mbarrier_arrive, mbarrier_arrive_remote, mbarrier_fence_init,
    mbarrier_init, mbarrier_test, mbarrier_test_cluster, remote_write_async,
};
pub(crate) use block::{block_barrier, block_barrier_arrive};
pub(crate) use collective::{Collective, Reduce, Shuffle, collective, collective_all};
pub(crate) use context::{live_lanes, pdl_leave, pdl_wait, place, tick};
pub(crate) use matrix::load_matrices;
pub(crate) use memory::{
    DYNAMIC_BASE, atomic_load, atomic_update, global_read, global_write, shared_atomic, shared_index_fault,
    shared_read, shared_write,
};
pub(crate) use remote::{cluster_map, cluster_rank, cluster_size, remote_read, remote_write};
pub(crate) use rendezvous::{cluster_arrive, cluster_wait};

#[doc(hidden)]
pub use memory::static_shared;
