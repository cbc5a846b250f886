//! Asynchronous copies from global to shared memory.
//!
//! `cp.async` copies a few bytes for each thread, which waits for its own groups of copies (and then
//! needs a barrier before others read). `cp.async.bulk` copies a block of any size by one thread and
//! signals an [`crate::mbarrier::Barrier`].
//!
//! The emulator copies as late as it may: at the wait. What reads too early reads bytes never written.

use crate::global::CachePolicy;
use crate::mbarrier::Barrier;

macro_rules! copies {
    ($($(#[$doc:meta])* $name:ident, $instruction:literal, $bytes:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `from` points to as many readable bytes, aligned to their number; the address is aligned alike.
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name(to: u32, from: *const u8) {
            on! { ptx {
                // SAFETY: the caller's.
                unsafe { core::arch::asm!(concat!($instruction, " [{d}], [{s}], ", stringify!($bytes), ";"), d = in(reg32) to, s = in(reg64) from, options(nostack)) }
            } emu { crate::emu::copy_async(to, from, $bytes) } }
        }
    )*};
}

copies! {
    /// `cp.async.ca.shared.global`: 4 bytes to a shared address.
    async_4, "cp.async.ca.shared.global", 4;
    /// `cp.async.ca.shared.global`: 8 bytes to a shared address.
    async_8, "cp.async.ca.shared.global", 8;
    /// `cp.async.cg.shared.global`: 16 bytes to a shared address, past L1.
    async_16, "cp.async.cg.shared.global", 16;
}

/// `cp.async.commit_group`: the thread's copies since the last commit become a group.
#[inline(always)]
pub fn commit() {
    on! { ptx {
        // SAFETY: orders copies.
        unsafe { core::arch::asm!("cp.async.commit_group;", options(nostack)) }
    } emu { crate::emu::copy_commit() } }
}

/// `cp.async.wait_group N`: waits until at most the `N` latest groups of this thread are under way.
#[inline(always)]
#[track_caller]
pub fn wait<const N: u32>() {
    on! { ptx {
        // SAFETY: waits.
        unsafe { core::arch::asm!("cp.async.wait_group {n};", n = const N, options(nostack)) }
    } emu { crate::emu::copy_wait(N as usize) } }
}

/// `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes`: copies `bytes` bytes to a
/// shared address; `barrier` counts them as they arrive. Address, pointer and size are multiples of 16.
/// Call it from one thread, after [`Barrier::arrive_expect`]; `policy` is the L2's. Traps before sm_90.
///
/// # Safety
/// `from` points to `bytes` readable bytes.
#[inline(always)]
#[track_caller]
pub unsafe fn bulk_policy(to: u32, from: *const u8, bytes: u32, barrier: Barrier, policy: CachePolicy) {
    on! { ptx {
        if crate::arch::HAS_BULK_COPY {
            // SAFETY: the caller's.
            unsafe {
                core::arch::asm!("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [{d}], [{s}], {n}, [{m}], {p};", d = in(reg32) to, s = in(reg64) from, n = in(reg32) bytes, m = in(reg32) barrier.address(), p = in(reg64) policy.0, options(nostack))
            }
        } else {
            // SAFETY: ends the kernel.
            unsafe { core::arch::nvptx::trap() }
        }
    } emu { let _ = policy; crate::emu::copy_bulk(to, from, bytes, barrier.address()) } }
}

/// [`bulk_policy`] without a policy.
///
/// # Safety
/// As there.
#[inline(always)]
#[track_caller]
pub unsafe fn bulk(to: u32, from: *const u8, bytes: u32, barrier: Barrier) {
    on! { ptx {
        if crate::arch::HAS_BULK_COPY {
            // SAFETY: the caller's.
            unsafe {
                core::arch::asm!("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{d}], [{s}], {n}, [{m}];", d = in(reg32) to, s = in(reg64) from, n = in(reg32) bytes, m = in(reg32) barrier.address(), options(nostack))
            }
        } else {
            // SAFETY: ends the kernel.
            unsafe { core::arch::nvptx::trap() }
        }
    } emu { crate::emu::copy_bulk(to, from, bytes, barrier.address()) } }
}
