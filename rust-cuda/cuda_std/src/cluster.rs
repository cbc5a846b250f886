//! Thread block clusters: blocks that run at once, wait for each other, and reach each other's shared memory.
//!
//! A launch with [`cluster(n)`](crate::launch::LaunchConfig::cluster) runs each `n` blocks that follow one another along
//! x as one cluster; without it every block is a cluster of its own. Three rules, all of which the emulator checks:
//!
//! - Shared memory of another block may be touched once that block is known to run, and while it does: a cluster barrier
//!   before the first remote access, and one behind the last before any block ends. Where all of them are
//!   [`Remote::store_async`], a block may end when it has waited for what it expects.
//! - What one block writes into another's shared memory is read there after a cluster barrier, or after an mbarrier
//!   that the writer signals and the reader waits for with [`Barrier::wait_cluster`](crate::mbarrier::Barrier::wait_cluster).
//! - Every thread of every block comes to a cluster barrier. (The hardware lets threads that have ended off; a kernel
//!   that needs that is refused here.)
//!
//! [`crate::arch::HAS_CLUSTERS`] says where this exists. Before sm_90 a block has rank 0 in a cluster of 1, and
//! everything else traps.

use crate::mbarrier::RemoteBarrier;
use crate::memory::{AsyncWord, Word};
use crate::shared::Shared;

#[cfg(target_arch = "nvptx64")]
macro_rules! special_register {
    ($name:literal, $before:expr) => {
        if crate::arch::HAS_CLUSTERS {
            let value: u32;
            // SAFETY: reads a special register.
            unsafe { core::arch::asm!(concat!("mov.u32 {v}, ", $name, ";"), v = out(reg32) value, options(pure, nomem, nostack)) };
            value
        } else {
            $before
        }
    };
}

/// `%cluster_ctarank`: the block's number in its cluster.
#[inline(always)]
#[must_use]
pub fn rank() -> u32 {
    on! { ptx { special_register!("%cluster_ctarank", 0) } emu { crate::emu::cluster_rank() } }
}

/// `%cluster_nctarank`: blocks of the cluster.
#[inline(always)]
#[must_use]
pub fn size() -> u32 {
    on! { ptx { special_register!("%cluster_nctarank", 1) } emu { crate::emu::cluster_size() } }
}

/// `%clusterid.x`: the cluster's number along x in the grid.
#[inline(always)]
#[must_use]
pub fn id() -> u32 {
    on! { ptx { special_register!("%clusterid.x", crate::thread::block_idx_x()) } emu { crate::emu::place().block[0] / crate::emu::cluster_size() } }
}

/// `barrier.cluster.arrive.aligned` (release): arrives at the cluster's barrier without waiting. What the thread did
/// before is visible to those who [`wait`]. All lanes of a warp call it together; each must [`wait`] before it arrives
/// again.
#[inline(always)]
#[track_caller]
pub fn arrive() {
    on! { ptx {
        if crate::arch::HAS_CLUSTERS {
            // SAFETY: a barrier; convergence is the caller's contract.
            unsafe { crate::llvm::cluster_arrive() }
        } else {
            crate::arch::trap()
        }
    } emu { crate::emu::cluster_arrive(true) } }
}

/// `barrier.cluster.arrive.relaxed.aligned`: [`arrive`] that makes nothing visible but mbarriers behind
/// [`fence_init`](crate::mbarrier::fence_init). For the barrier before the first remote access, where there is nothing
/// else to see: the release of [`arrive`] waits for all that the thread has under way.
#[inline(always)]
#[track_caller]
pub fn arrive_relaxed() {
    on! { ptx {
        if crate::arch::HAS_CLUSTERS {
            // SAFETY: a barrier; convergence is the caller's contract.
            unsafe { crate::llvm::cluster_arrive_relaxed() }
        } else {
            crate::arch::trap()
        }
    } emu { crate::emu::cluster_arrive(false) } }
}

/// `barrier.cluster.wait.aligned` (acquire): waits until every thread of the cluster has arrived. All lanes of a warp
/// call it together, after [`arrive`].
#[inline(always)]
#[track_caller]
pub fn wait() {
    on! { ptx {
        if crate::arch::HAS_CLUSTERS {
            // SAFETY: a barrier; convergence is the caller's contract.
            unsafe { crate::llvm::cluster_wait() }
        } else {
            crate::arch::trap()
        }
    } emu { crate::emu::cluster_wait() } }
}

/// [`arrive`] and [`wait`]: the barrier of all threads of the cluster.
#[inline(always)]
#[track_caller]
pub fn sync() {
    arrive();
    wait();
}

/// `mapa.shared::cluster.u32`: where the shared address of this block lies in block `rank`.
#[inline(always)]
#[track_caller]
pub(crate) fn map(address: u32, rank: u32) -> u32 {
    on! { ptx {
        if crate::arch::HAS_CLUSTERS {
            let mapped: u32;
            // SAFETY: computes an address.
            unsafe { core::arch::asm!("mapa.shared::cluster.u32 {m}, {a}, {r};", m = out(reg32) mapped, a = in(reg32) address, r = in(reg32) rank, options(pure, nomem, nostack)) };
            mapped
        } else {
            crate::arch::trap()
        }
    } emu { crate::emu::cluster_map(address, rank) } }
}

/// Values of `T` in the shared memory of a block of the cluster, made by [`Shared::in_block`].
pub struct Remote<T>(
    /// Its addresses are the cluster's, so it is never loaded from or stored to.
    Shared<T>,
);

impl<T> Clone for Remote<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Remote<T> {}

impl<T> Shared<T> {
    /// `mapa.shared::cluster.u32`: the same place in block `rank` of the cluster, which may be this one.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn in_block(self, rank: u32) -> Remote<T> {
        Remote(Shared::from_raw(map(self.address(), rank), self.len()))
    }
}

impl<T> Remote<T> {
    /// How many values.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(self) -> u32 {
        self.0.len()
    }

    /// The address of value `index` in the cluster's shared memory.
    #[inline(always)]
    #[must_use]
    pub const fn address_of(self, index: u32) -> u32 {
        self.0.address_of(index)
    }

    /// Traps where there are no clusters. In the emulator, checks that a `U` at value `index` lies inside.
    #[inline(always)]
    #[track_caller]
    fn check<U>(self, index: u32) {
        on! { ptx {
            if !crate::arch::HAS_CLUSTERS {
                crate::arch::trap()
            }
        } emu {} }
        self.0.check(index, size_of::<U>().div_ceil(size_of::<T>()) as u32);
    }
}

impl<T: Word> Remote<T> {
    /// `ld.shared::cluster`: value `index`.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn load(self, index: u32) -> T {
        self.load_as(index)
    }

    /// `st.shared::cluster`: sets value `index`.
    #[inline(always)]
    #[track_caller]
    pub fn store(self, index: u32, value: T) {
        self.store_as(index, value);
    }

    /// `ld.shared::cluster`: a wider value that begins at value `index`, aligned to its own size.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn load_as<U: Word>(self, index: u32) -> U {
        self.check::<U>(index);
        U::read_remote(self.address_of(index))
    }

    /// `st.shared::cluster`: stores a wider value from value `index` on.
    #[inline(always)]
    #[track_caller]
    pub fn store_as<U: Word>(self, index: u32, value: U) {
        self.check::<U>(index);
        U::write_remote(self.address_of(index), value);
    }

    /// `st.async.shared::cluster.mbarrier::complete_tx::bytes`: stores a value of 4, 8 or 16 bytes from value `index` on
    /// and signals `barrier`, which must be of the same block, that so many bytes have come. The block expects them by
    /// [`arrive_expect`](crate::mbarrier::Barrier::arrive_expect), and reads them after
    /// [`wait_cluster`](crate::mbarrier::Barrier::wait_cluster). Data and signal make one trip.
    #[inline(always)]
    #[track_caller]
    pub fn store_async<U: AsyncWord>(self, index: u32, value: U, barrier: RemoteBarrier) {
        self.check::<U>(index);
        U::write_async(self.address_of(index), value, barrier.address());
    }
}
