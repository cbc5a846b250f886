//! Global memory: loads and stores with cache hints, and prefetch.
//!
//! An ordinary `*p` is right for most reads. These are for what the caches should know: weights are
//! read once ([`load_stream`]), activations by every block ([`load_nc`]). They keep their order
//! among each other and against barriers, so that a kernel says what is loaded before it waits.
//!
//! All pointers must be aligned to the size of the value: 16 bytes for [`crate::U32x4`].

use crate::memory::{Word, op};

macro_rules! loads {
    ($($(#[$doc:meta])* $name:ident, $op:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `from` points to a readable, aligned value.
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: Word>(from: *const T) -> T {
            // SAFETY: passed on.
            unsafe { T::read::<{ op::$op }>(from) }
        }
    )*};
}

loads! {
    /// `ld.global`: through L1 and L2.
    load, PLAIN;
    /// `ld.global.nc`: read-only for the whole kernel, through L1. Not for memory that this kernel
    /// or, under PDL, the launch before it may still be writing.
    load_nc, NC;
    /// `ld.global.L1::no_allocate`: read once: weights. Not `.nc`: the assembler moves such loads past barriers, down to
    /// where their values are used, and then few are in flight.
    load_stream, READ_ONCE;
    /// `ld.global.nc.L1::evict_last`: read-only, kept in L1 as long as possible.
    load_keep, NC_KEEP;
    /// `ld.global.cg`: from L2, past L1: what other blocks wrote.
    load_cg, CG;
    /// `ld.global.ca`: through L1 and L2, said outright.
    load_ca, CA;
    /// `ld.volatile.global`: from memory each time.
    load_volatile, CV;
}

macro_rules! stores {
    ($($(#[$doc:meta])* $name:ident, $op:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `to` points to a writable, aligned value.
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: Word>(to: *mut T, value: T) {
            // SAFETY: passed on.
            unsafe { T::write::<{ op::$op }>(to, value) }
        }
    )*};
}

stores! {
    /// `st.global`.
    store, PLAIN;
    /// `st.global.cg`: kept in L2.
    store_cg, CG;
    /// `st.global.cs`: written once, evicted first.
    store_stream, STREAM;
    /// `st.volatile.global`: to memory each time.
    store_volatile, CV;
}

/// [`store`] where `condition` holds, as one predicated instruction. A branch would part the lanes, and the assembler writes
/// what follows once for each part.
///
/// # Safety
/// Where `condition` holds, `to` points to a writable, aligned float.
#[inline(always)]
#[track_caller]
pub unsafe fn store_if(condition: bool, to: *mut f32, value: f32) {
    on! { ptx {
        // SAFETY: the caller's.
        unsafe { core::arch::asm!("{{ .reg .pred q; setp.ne.u32 q, {c}, 0; @q st.global.f32 [{p}], {v}; }}", c = in(reg32) u32::from(condition), p = in(reg64) to, v = in(reg32) value, options(nostack)) }
    } emu {
        if condition {
            // SAFETY: the caller's.
            unsafe { store(to, value) }
        }
    } }
}

/// An L2 eviction policy for [`load_policy`] and [`store_policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy(pub(crate) u64);

impl CachePolicy {
    /// `createpolicy.fractional.L2::evict_first`: the first to leave L2.
    #[inline(always)]
    #[must_use]
    pub fn evict_first() -> Self {
        on! { ptx {
            let policy: u64;
            // SAFETY: makes a value and touches no memory.
            unsafe { core::arch::asm!("createpolicy.fractional.L2::evict_first.b64 {p}, 1.0;", p = out(reg64) policy, options(pure, nomem, nostack)) };
            Self(policy)
        } emu { Self(1) } }
    }

    /// `createpolicy.fractional.L2::evict_last`: the last to leave L2.
    #[inline(always)]
    #[must_use]
    pub fn evict_last() -> Self {
        on! { ptx {
            let policy: u64;
            // SAFETY: makes a value and touches no memory.
            unsafe { core::arch::asm!("createpolicy.fractional.L2::evict_last.b64 {p}, 1.0;", p = out(reg64) policy, options(pure, nomem, nostack)) };
            Self(policy)
        } emu { Self(2) } }
    }
}

/// `ld.global.L1::no_allocate.L2::cache_hint`: past L1, with an L2 policy.
///
/// # Safety
/// `from` points to a readable, aligned value.
#[inline(always)]
#[track_caller]
pub unsafe fn load_policy<T: Word>(from: *const T, policy: CachePolicy) -> T {
    // SAFETY: passed on.
    unsafe { T::read_policy(from, policy.0) }
}

/// [`load_stream`], first to leave L2: weights. What a step needs again, but is small, then stays there: gains, rotations,
/// the arguments of launches.
///
/// # Safety
/// `from` points to a readable, aligned value.
#[inline(always)]
#[track_caller]
pub unsafe fn load_once<T: Word>(from: *const T) -> T {
    // SAFETY: passed on.
    unsafe { load_policy(from, CachePolicy::evict_first()) }
}

/// `st.global.L2::cache_hint`: with an L2 policy.
///
/// # Safety
/// `to` points to a writable, aligned value.
#[inline(always)]
#[track_caller]
pub unsafe fn store_policy<T: Word>(to: *mut T, value: T, policy: CachePolicy) {
    // SAFETY: passed on.
    unsafe { T::write_policy(to, value, policy.0) }
}

/// `prefetch.global.L2`: the line that `at` lies in, into L2. A hint: nothing is read, and a wrong
/// address does no harm. The emulator does nothing.
#[inline(always)]
pub fn prefetch_l2<T>(at: *const T) {
    on! { ptx {
        // SAFETY: a hint, without effect on values.
        unsafe { core::arch::asm!("prefetch.global.L2 [{p}];", p = in(reg64) at, options(nostack)) }
    } emu { let _ = at; } }
}

/// `cp.async.bulk.prefetch.L2`: `bytes` bytes from `at` into L2; both multiples of 16. Does nothing
/// before sm_90 and in the emulator.
///
/// # Safety
/// The whole range is allocated.
#[inline(always)]
pub unsafe fn prefetch_l2_range<T>(at: *const T, bytes: u32) {
    on! { ptx {
        if crate::arch::HAS_BULK_COPY {
            // SAFETY: the caller's: the range is allocated; nothing but the cache changes.
            unsafe { core::arch::asm!("cp.async.bulk.prefetch.L2.global [{p}], {n};", p = in(reg64) at, n = in(reg32) bytes, options(nostack)) }
        }
    } emu {
        assert!(at.addr().is_multiple_of(16) && bytes.is_multiple_of(16), "bulk prefetch: address and size are multiples of 16");
    } }
}
