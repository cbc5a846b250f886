//! Barriers in shared memory that count arrivals and bytes.
//!
//! A barrier goes through phases. A phase ends when the expected number of arrivals has come and all
//! expected bytes of bulk copies have landed; whoever waits names the phase's parity: 0 for the
//! first, then 1, 0, …

use crate::shared::Shared;

/// A barrier object: 8 bytes of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier(u32);

impl Barrier {
    /// The barrier that lies in value `index` of `memory`.
    #[inline(always)]
    #[must_use]
    pub fn at(memory: Shared<u64>, index: u32) -> Self {
        Self(memory.address_of(index))
    }

    /// Its shared address.
    #[inline(always)]
    #[must_use]
    pub fn address(self) -> u32 {
        self.0
    }

    /// `mbarrier.init.shared::cta.b64`, for `arrivals` arrivals a phase. One thread calls it, then
    /// [`fence_init`], then the block meets at a barrier.
    #[inline(always)]
    #[track_caller]
    pub fn init(self, arrivals: u32) {
        on! { ptx {
            // SAFETY: writes shared memory, which holds no Rust object.
            unsafe { core::arch::asm!("mbarrier.init.shared.b64 [{a}], {n};", a = in(reg32) self.0, n = in(reg32) arrivals, options(nostack)) }
        } emu { crate::emu::mbarrier_init(self.0, arrivals) } }
    }

    /// `mbarrier.arrive.shared::cta.b64`: one arrival; what the thread did before is visible to those who wait.
    #[inline(always)]
    #[track_caller]
    pub fn arrive(self) {
        on! { ptx {
            // SAFETY: changes the barrier object only.
            unsafe { core::arch::asm!("{{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [{a}]; }}", a = in(reg32) self.0, options(nostack)) }
        } emu { crate::emu::mbarrier_arrive(self.0, 0) } }
    }

    /// `mbarrier.arrive.expect_tx.shared::cta.b64`: one arrival, and `bytes` more bytes to wait for.
    /// Traps before sm_90.
    #[inline(always)]
    #[track_caller]
    pub fn arrive_expect(self, bytes: u32) {
        on! { ptx {
            if crate::arch::HAS_BULK_COPY {
                // SAFETY: changes the barrier object only.
                unsafe { core::arch::asm!("{{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [{a}], {n}; }}", a = in(reg32) self.0, n = in(reg32) bytes, options(nostack)) }
            } else {
                // SAFETY: ends the kernel.
                unsafe { core::arch::nvptx::trap() }
            }
        } emu { crate::emu::mbarrier_arrive(self.0, bytes) } }
    }

    /// `mbarrier.try_wait.parity.shared::cta.b64` (before sm_90 [`test`](Self::test)): whether the
    /// phase of this parity has ended, after waiting a little.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn try_wait(self, parity: u32) -> bool {
        on! { ptx {
            if !crate::arch::SM_90 {
                return self.test(parity);
            }
            let done: u32;
            // SAFETY: reads the barrier object.
            unsafe { core::arch::asm!("{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [{a}], {q}; selp.u32 {o}, 1, 0, p; }}", o = out(reg32) done, a = in(reg32) self.0, q = in(reg32) parity, options(nostack)) };
            done != 0
        } emu { crate::emu::mbarrier_test(self.0, parity) } }
    }

    /// `mbarrier.test_wait.parity.shared::cta.b64`: [`Self::try_wait`] that never stays to see.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn test(self, parity: u32) -> bool {
        on! { ptx {
            let done: u32;
            // SAFETY: reads the barrier object.
            unsafe { core::arch::asm!("{{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [{a}], {q}; selp.u32 {o}, 1, 0, p; }}", o = out(reg32) done, a = in(reg32) self.0, q = in(reg32) parity, options(nostack)) };
            done != 0
        } emu { crate::emu::mbarrier_test(self.0, parity) } }
    }

    /// Waits until the phase of this parity has ended.
    #[inline(always)]
    #[track_caller]
    pub fn wait(self, parity: u32) {
        while !self.try_wait(parity) {}
    }
}

impl Barrier {
    /// `mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64`: [`Self::try_wait`] that also makes visible what other
    /// blocks of the cluster did before they signalled. Traps before sm_90.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn try_wait_cluster(self, parity: u32) -> bool {
        on! { ptx {
            if !crate::arch::HAS_CLUSTERS {
                crate::arch::trap()
            }
            let done: u32;
            // SAFETY: reads the barrier object.
            unsafe { core::arch::asm!("{{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [{a}], {q}; selp.u32 {o}, 1, 0, p; }}", o = out(reg32) done, a = in(reg32) self.0, q = in(reg32) parity, options(nostack)) };
            done != 0
        } emu { crate::emu::mbarrier_test_cluster(self.0, parity) } }
    }

    /// Waits until the phase of this parity has ended, as [`Self::try_wait_cluster`] does.
    #[inline(always)]
    #[track_caller]
    pub fn wait_cluster(self, parity: u32) {
        while !self.try_wait_cluster(parity) {}
    }

    /// `mapa.shared::cluster.u32`: the barrier at the same place in block `rank` of the cluster. It must be initialised,
    /// and a cluster barrier lie between that and its first use from here.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn in_block(self, rank: u32) -> RemoteBarrier {
        RemoteBarrier(crate::cluster::map(self.0, rank))
    }
}

/// A barrier object in a block of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteBarrier(u32);

impl RemoteBarrier {
    /// Its address in the cluster's shared memory.
    #[inline(always)]
    #[must_use]
    pub fn address(self) -> u32 {
        self.0
    }

    /// `mbarrier.arrive.release.cluster.shared::cluster.b64`: one arrival; what the thread did before, in any block's
    /// shared memory, is visible to those who wait with [`Barrier::wait_cluster`]. Traps before sm_90.
    #[inline(always)]
    #[track_caller]
    pub fn arrive(self) {
        on! { ptx {
            if crate::arch::HAS_CLUSTERS {
                // SAFETY: changes the barrier object only.
                unsafe { core::arch::asm!("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{a}];", a = in(reg32) self.0, options(nostack)) }
            } else {
                crate::arch::trap()
            }
        } emu { crate::emu::mbarrier_arrive_remote(self.0) } }
    }
}

/// Makes initialised barriers visible to bulk copies and, behind a cluster barrier, to other blocks: `fence.mbarrier_init.release.cluster` and
/// `fence.proxy.async.shared::cta`; nothing before sm_90.
#[inline(always)]
pub fn fence_init() {
    on! { ptx {
        if crate::arch::SM_90 {
            // SAFETY: fences.
            unsafe { core::arch::asm!("fence.mbarrier_init.release.cluster;", "fence.proxy.async.shared::cta;", options(nostack)) }
        }
    } emu { crate::emu::mbarrier_fence_init() } }
}
