//! The cluster and thread that run just now on this host thread.

use super::cluster::Cluster;
use super::fault::{FaultKind, raise};
use core::cell::Cell;

/// Where a thread stands in its launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub thread: [u32; 3],
    pub block: [u32; 3],
    pub block_dim: [u32; 3],
    pub grid_dim: [u32; 3],
    /// The thread's number in its block.
    pub linear: u32,
}

thread_local! {
    static CURRENT: Cell<*mut Cluster> = const { Cell::new(core::ptr::null_mut()) };
}

/// Makes `cluster` the current one until the guard is dropped.
pub(super) fn enter(cluster: *mut Cluster) -> impl Drop {
    struct Leave(*mut Cluster);
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    Leave(CURRENT.replace(cluster))
}

/// Runs `f` on the current cluster. `f` must not switch threads.
pub(super) fn with<R>(f: impl FnOnce(&mut Cluster) -> R) -> R {
    let cluster = CURRENT.get();
    assert!(
        !cluster.is_null(),
        "a device operation was called outside a kernel: launch it with emu::Emulator"
    );
    // SAFETY: the scheduler keeps the cluster alive while it is current, and holds no reference to it
    // while a thread runs; `f` neither switches nor calls `with`.
    f(unsafe { &mut *cluster })
}

/// Lets other threads run until the scheduler resumes this one.
pub(super) fn suspend() {
    let yielder = with(|cluster| cluster.lane().yielder);
    // SAFETY: the yielder lives on the running coroutine's stack for as long as it runs.
    unsafe { (*yielder).suspend(()) };
}

/// Lets all other threads have a turn: what a thread does that polls.
pub(super) fn pause() {
    with(Cluster::enqueue_poller);
    suspend();
}

pub(crate) fn place() -> Place {
    with(|cluster| cluster.lane().place)
}

pub(crate) fn live_lanes() -> u32 {
    with(|cluster| cluster.warps[cluster.current / 32].live)
}

pub(crate) fn pdl_wait() {
    let allowed = with(|cluster| {
        cluster.block_mut().waited = true;
        cluster.kernel.pdl
    });
    if !allowed {
        let detail = "calls pdl::wait() but is not declared so: write #[kernel(pdl)]".to_owned();
        raise(FaultKind::DependencyWait, None, detail);
    }
}

pub(crate) fn pdl_leave() {
    with(|cluster| cluster.block_mut().waited = true);
}

pub(crate) fn tick() -> u64 {
    with(|cluster| {
        cluster.ticks += 1;
        cluster.ticks
    })
}
