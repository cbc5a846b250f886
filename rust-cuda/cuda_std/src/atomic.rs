//! Scoped atomics and fences.
//!
//! Rust's own atomics are of system scope on the GPU and cost accordingly. Here the scope is the
//! module: [`gpu`] between blocks, [`cta`] within one, [`sys`] with the host. Shared memory's atomics
//! are methods of [`Shared`], in block scope.
//!
//! The emulator runs blocks one after the other: atomics between blocks and "the last block
//! finishes" work; waiting for another block does not, and is reported.

use crate::shared::Shared;

/// A number that atomics add, and compare and exchange.
pub trait Number: Copy + sealed::Sealed {
    #[doc(hidden)]
    unsafe fn load<const OP: u8>(from: *const Self) -> Self;
    #[doc(hidden)]
    unsafe fn store<const OP: u8>(to: *mut Self, value: Self);
    #[doc(hidden)]
    unsafe fn add<const OP: u8>(at: *mut Self, value: Self) -> Self;
    #[doc(hidden)]
    unsafe fn reduce_add<const OP: u8>(at: *mut Self, value: Self);
    #[doc(hidden)]
    unsafe fn exchange<const OP: u8>(at: *mut Self, value: Self) -> Self;
}

/// An integer: what [`Number`] does, and bits, order and compare-and-swap.
pub trait Integer: Number {
    #[doc(hidden)]
    unsafe fn max<const OP: u8>(at: *mut Self, value: Self) -> Self;
    #[doc(hidden)]
    unsafe fn min<const OP: u8>(at: *mut Self, value: Self) -> Self;
    #[doc(hidden)]
    unsafe fn and<const OP: u8>(at: *mut Self, value: Self) -> Self;
    #[doc(hidden)]
    unsafe fn or<const OP: u8>(at: *mut Self, value: Self) -> Self;
    #[doc(hidden)]
    unsafe fn compare_exchange<const OP: u8>(at: *mut Self, expected: Self, value: Self) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for i32 {}
    impl Sealed for u64 {}
    impl Sealed for f32 {}
}

/// Order and scope of an atomic, as the const parameter of the traits' methods.
mod op {
    pub const GPU_RELAXED: u8 = 0;
    pub const GPU: u8 = 1;
    pub const CTA_RELAXED: u8 = 2;
    pub const CTA: u8 = 3;
    pub const SYS_RELAXED: u8 = 4;
    pub const SYS: u8 = 5;
}

#[cfg(target_arch = "nvptx64")]
mod instruction {
    /// `atom` with each order and scope: `rmw!(OP, ".add.u32", reg32, u32, at, value)`.
    macro_rules! rmw {
        ($op:expr, $what:literal, $class:ident, $ty:ty, $at:expr, $($value:expr),+) => {
            match $op {
                op::GPU_RELAXED => rmw!(@one "atom.relaxed.gpu.global", $what, $class, $ty, $at, $($value),+),
                op::CTA_RELAXED => rmw!(@one "atom.relaxed.cta.global", $what, $class, $ty, $at, $($value),+),
                op::CTA => rmw!(@one "atom.acq_rel.cta.global", $what, $class, $ty, $at, $($value),+),
                op::SYS_RELAXED => rmw!(@one "atom.relaxed.sys.global", $what, $class, $ty, $at, $($value),+),
                op::SYS => rmw!(@one "atom.acq_rel.sys.global", $what, $class, $ty, $at, $($value),+),
                _ => rmw!(@one "atom.acq_rel.gpu.global", $what, $class, $ty, $at, $($value),+),
            }
        };
        (@one $op:literal, $what:literal, $class:ident, $ty:ty, $at:expr, $v:expr) => {{
            let old: $ty;
            core::arch::asm!(concat!($op, $what, " {o}, [{p}], {v};"), o = out($class) old, p = in(reg64) $at, v = in($class) $v, options(nostack));
            old
        }};
        (@one $op:literal, $what:literal, $class:ident, $ty:ty, $at:expr, $e:expr, $v:expr) => {{
            let old: $ty;
            core::arch::asm!(concat!($op, $what, " {o}, [{p}], {e}, {v};"), o = out($class) old, p = in(reg64) $at, e = in($class) $e, v = in($class) $v, options(nostack));
            old
        }};
    }
    /// `red` with each order and scope.
    macro_rules! red {
        ($op:expr, $what:literal, $class:ident, $at:expr, $value:expr) => {
            match $op {
                op::GPU_RELAXED => red!(@one "red.relaxed.gpu.global", $what, $class, $at, $value),
                op::CTA_RELAXED => red!(@one "red.relaxed.cta.global", $what, $class, $at, $value),
                op::CTA => red!(@one "red.release.cta.global", $what, $class, $at, $value),
                op::SYS_RELAXED => red!(@one "red.relaxed.sys.global", $what, $class, $at, $value),
                op::SYS => red!(@one "red.release.sys.global", $what, $class, $at, $value),
                _ => red!(@one "red.release.gpu.global", $what, $class, $at, $value),
            }
        };
        (@one $op:literal, $what:literal, $class:ident, $at:expr, $v:expr) => {
            core::arch::asm!(concat!($op, $what, " [{p}], {v};"), p = in(reg64) $at, v = in($class) $v, options(nostack))
        };
    }
    /// `ld` with each order and scope.
    macro_rules! ld {
        ($op:expr, $what:literal, $class:ident, $ty:ty, $at:expr) => {
            match $op {
                op::GPU_RELAXED => ld!(@one "ld.relaxed.gpu.global", $what, $class, $ty, $at),
                op::CTA_RELAXED => ld!(@one "ld.relaxed.cta.global", $what, $class, $ty, $at),
                op::CTA => ld!(@one "ld.acquire.cta.global", $what, $class, $ty, $at),
                op::SYS_RELAXED => ld!(@one "ld.relaxed.sys.global", $what, $class, $ty, $at),
                op::SYS => ld!(@one "ld.acquire.sys.global", $what, $class, $ty, $at),
                _ => ld!(@one "ld.acquire.gpu.global", $what, $class, $ty, $at),
            }
        };
        (@one $op:literal, $what:literal, $class:ident, $ty:ty, $at:expr) => {{
            let value: $ty;
            core::arch::asm!(concat!($op, $what, " {o}, [{p}];"), o = out($class) value, p = in(reg64) $at, options(nostack));
            value
        }};
    }
    /// `st` with each order and scope.
    macro_rules! st {
        ($op:expr, $what:literal, $class:ident, $at:expr, $value:expr) => {
            match $op {
                op::GPU_RELAXED => red!(@one "st.relaxed.gpu.global", $what, $class, $at, $value),
                op::CTA_RELAXED => red!(@one "st.relaxed.cta.global", $what, $class, $at, $value),
                op::CTA => red!(@one "st.release.cta.global", $what, $class, $at, $value),
                op::SYS_RELAXED => red!(@one "st.relaxed.sys.global", $what, $class, $at, $value),
                op::SYS => red!(@one "st.release.sys.global", $what, $class, $at, $value),
                _ => red!(@one "st.release.gpu.global", $what, $class, $at, $value),
            }
        };
    }
    pub(super) use {ld, red, rmw, st};
}
#[cfg(target_arch = "nvptx64")]
use instruction::{ld, red, rmw, st};

macro_rules! number {
    ($ty:ty, $class:ident, $bits:literal, $add:literal, $exchange:literal, $plus:expr) => {
        impl Number for $ty {
            #[inline(always)]
            unsafe fn load<const OP: u8>(from: *const Self) -> Self {
                // SAFETY: the caller's: readable and aligned.
                on! { ptx { unsafe { ld!(OP, $bits, $class, $ty, from) } } emu { unsafe { crate::emu::atomic_load(from) } } }
            }
            #[inline(always)]
            unsafe fn store<const OP: u8>(to: *mut Self, value: Self) {
                // SAFETY: the caller's: writable and aligned.
                on! { ptx { unsafe { st!(OP, $bits, $class, to, value) } } emu { unsafe { crate::emu::global_write(to, value) } } }
            }
            #[inline(always)]
            unsafe fn add<const OP: u8>(at: *mut Self, value: Self) -> Self {
                // SAFETY: the caller's: readable, writable and aligned.
                on! { ptx { unsafe { rmw!(OP, $add, $class, $ty, at, value) } } emu { unsafe { crate::emu::atomic_update(at, |old| $plus(old, value)) } } }
            }
            #[inline(always)]
            unsafe fn reduce_add<const OP: u8>(at: *mut Self, value: Self) {
                // SAFETY: the caller's: readable, writable and aligned.
                on! { ptx { unsafe { red!(OP, $add, $class, at, value) } } emu { unsafe { crate::emu::atomic_update(at, |old| $plus(old, value)) }; } }
            }
            #[inline(always)]
            unsafe fn exchange<const OP: u8>(at: *mut Self, value: Self) -> Self {
                // SAFETY: the caller's: readable, writable and aligned.
                on! { ptx { unsafe { rmw!(OP, $exchange, $class, $ty, at, value) } } emu { unsafe { crate::emu::atomic_update(at, |_| value) } } }
            }
        }
    };
}
number!(u32, reg32, ".b32", ".add.u32", ".exch.b32", u32::wrapping_add);
number!(i32, reg32, ".b32", ".add.s32", ".exch.b32", i32::wrapping_add);
number!(u64, reg64, ".b64", ".add.u64", ".exch.b64", u64::wrapping_add);
number!(f32, reg32, ".b32", ".add.f32", ".exch.b32", core::ops::Add::add);

macro_rules! integer {
    ($ty:ty, $class:ident, $max:literal, $min:literal, $and:literal, $or:literal, $cas:literal) => {
        impl Integer for $ty {
            #[inline(always)]
            unsafe fn max<const OP: u8>(at: *mut Self, value: Self) -> Self {
                // SAFETY: the caller's: readable, writable and aligned.
                on! { ptx { unsafe { rmw!(OP, $max, $class, $ty, at, value) } } emu { unsafe { crate::emu::atomic_update(at, |old| Ord::max(old, value)) } } }
            }
            #[inline(always)]
            unsafe fn min<const OP: u8>(at: *mut Self, value: Self) -> Self {
                // SAFETY: the caller's: readable, writable and aligned.
                on! { ptx { unsafe { rmw!(OP, $min, $class, $ty, at, value) } } emu { unsafe { crate::emu::atomic_update(at, |old| Ord::min(old, value)) } } }
            }
            #[inline(always)]
            unsafe fn and<const OP: u8>(at: *mut Self, value: Self) -> Self {
                // SAFETY: the caller's: readable, writable and aligned.
                on! { ptx { unsafe { rmw!(OP, $and, $class, $ty, at, value) } } emu { unsafe { crate::emu::atomic_update(at, |old| old & value) } } }
            }
            #[inline(always)]
            unsafe fn or<const OP: u8>(at: *mut Self, value: Self) -> Self {
                // SAFETY: the caller's: readable, writable and aligned.
                on! { ptx { unsafe { rmw!(OP, $or, $class, $ty, at, value) } } emu { unsafe { crate::emu::atomic_update(at, |old| old | value) } } }
            }
            #[inline(always)]
            unsafe fn compare_exchange<const OP: u8>(at: *mut Self, expected: Self, value: Self) -> Self {
                // SAFETY: the caller's: readable, writable and aligned.
                on! { ptx { unsafe { rmw!(OP, $cas, $class, $ty, at, expected, value) } }
                emu {
                    let update = |old| if old == expected { value } else { old };
                    // SAFETY: as above.
                    unsafe { crate::emu::atomic_update(at, update) }
                } }
            }
        }
    };
}
integer!(u32, reg32, ".max.u32", ".min.u32", ".and.b32", ".or.b32", ".cas.b32");
integer!(i32, reg32, ".max.s32", ".min.s32", ".and.b32", ".or.b32", ".cas.b32");
integer!(u64, reg64, ".max.u64", ".min.u64", ".and.b64", ".or.b64", ".cas.b64");

macro_rules! scope {
    ($(#[$doc:meta])* $scope:ident, $relaxed:ident, $ordered:ident, $fence:literal) => {
        $(#[$doc])*
        pub mod $scope {
            use super::{Integer, Number, op};

            /// `fence.acq_rel`: orders this thread's accesses before and after it, for the scope.
            #[inline(always)]
            pub fn fence() {
                on! { ptx {
                    // SAFETY: a fence.
                    unsafe { core::arch::asm!($fence, options(nostack)) }
                } emu {} }
            }

            scope! { @functions $relaxed, $ordered;
                /// `ld.acquire`.
                load_acquire<Number>(from: *const T) -> T, load, $ordered;
                /// `ld.relaxed`.
                load_relaxed<Number>(from: *const T) -> T, load, $relaxed;
                /// `st.release`.
                store_release<Number>(to: *mut T, value: T) -> (), store, $ordered;
                /// `st.relaxed`.
                store_relaxed<Number>(to: *mut T, value: T) -> (), store, $relaxed;
                /// `atom.relaxed.add`: adds, and returns what was there.
                fetch_add<Number>(at: *mut T, value: T) -> T, add, $relaxed;
                /// `atom.acq_rel.add`: adds, and returns what was there.
                fetch_add_acq_rel<Number>(at: *mut T, value: T) -> T, add, $ordered;
                /// `red.relaxed.add`: adds and returns nothing.
                reduce_add<Number>(at: *mut T, value: T) -> (), reduce_add, $relaxed;
                /// `red.release.add`: adds and returns nothing; what this thread wrote comes first.
                reduce_add_release<Number>(at: *mut T, value: T) -> (), reduce_add, $ordered;
                /// `atom.acq_rel.exch`: stores, and returns what was there.
                exchange<Number>(at: *mut T, value: T) -> T, exchange, $ordered;
                /// `atom.relaxed.max`: keeps the larger, and returns what was there.
                fetch_max<Integer>(at: *mut T, value: T) -> T, max, $relaxed;
                /// `atom.relaxed.min`: keeps the smaller, and returns what was there.
                fetch_min<Integer>(at: *mut T, value: T) -> T, min, $relaxed;
                /// `atom.relaxed.and`: keeps the common bits, and returns what was there.
                fetch_and<Integer>(at: *mut T, value: T) -> T, and, $relaxed;
                /// `atom.relaxed.or`: sets bits, and returns what was there.
                fetch_or<Integer>(at: *mut T, value: T) -> T, or, $relaxed;
                /// `atom.acq_rel.cas`: stores `value` where `expected` is, and returns what was there.
                compare_exchange<Integer>(at: *mut T, expected: T, value: T) -> T, compare_exchange, $ordered;
            }
        }
    };
    (@functions $relaxed:ident, $ordered:ident; $($(#[$doc:meta])* $name:ident<$bound:ident>($($argument:ident: $ty:ty),*) -> $result:ty, $method:ident, $order:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The pointer is to global memory, valid for the access and aligned.
        #[inline(always)]
        pub unsafe fn $name<T: $bound>($($argument: $ty),*) -> $result {
            // SAFETY: passed on.
            unsafe { T::$method::<{ op::$order }>($($argument),*) }
        }
    )*};
}
scope!(
    /// Between the blocks of the GPU.
    gpu, GPU_RELAXED, GPU, "fence.acq_rel.gpu;"
);
scope!(
    /// Between the threads of a block.
    cta, CTA_RELAXED, CTA, "fence.acq_rel.cta;"
);
scope!(
    /// Between the GPU, other GPUs and the host.
    sys, SYS_RELAXED, SYS, "fence.acq_rel.sys;"
);

macro_rules! shared {
    ($ty:ty: $($(#[$doc:meta])* $name:ident $what:literal ($class:ident) $update:expr;)*) => {
        impl Shared<$ty> {$(
            $(#[$doc])*
            #[inline(always)]
            #[track_caller]
            pub fn $name(self, index: u32, value: $ty) -> $ty {
                let address = self.address_of(index);
                on! { ptx {
                    let old: $ty;
                    // SAFETY: shared memory holds no Rust object.
                    unsafe { core::arch::asm!(concat!("atom.relaxed.cta.shared", $what, " {o}, [{p}], {v};"), o = out($class) old, p = in(reg32) address, v = in($class) value, options(nostack)) };
                    old
                } emu { crate::emu::shared_atomic(address, |old: $ty| $update(old, value)) } }
            }
        )*}
    };
}
shared!(u32:
    /// `atom.shared.add.u32`: adds to value `index`, and returns what was there.
    fetch_add ".add.u32" (reg32) u32::wrapping_add;
    /// `atom.shared.max.u32`.
    fetch_max ".max.u32" (reg32) Ord::max;
    /// `atom.shared.min.u32`.
    fetch_min ".min.u32" (reg32) Ord::min;
    /// `atom.shared.or.b32`.
    fetch_or ".or.b32" (reg32) core::ops::BitOr::bitor;
    /// `atom.shared.exch.b32`.
    exchange ".exch.b32" (reg32) |_, value| value;
);
shared!(i32:
    /// `atom.shared.add.s32`: adds to value `index`, and returns what was there.
    fetch_add ".add.s32" (reg32) i32::wrapping_add;
    /// `atom.shared.max.s32`.
    fetch_max ".max.s32" (reg32) Ord::max;
    /// `atom.shared.min.s32`.
    fetch_min ".min.s32" (reg32) Ord::min;
);
shared!(f32:
    /// `atom.shared.add.f32`: adds to value `index`, and returns what was there. The order of several
    /// additions, and so the rounding of their sum, is not determined.
    fetch_add ".add.f32" (reg32) core::ops::Add::add;
);

impl Shared<u32> {
    /// `atom.shared.cas.b32`: stores `value` where `expected` is, and returns what was there.
    #[inline(always)]
    #[track_caller]
    pub fn compare_exchange(self, index: u32, expected: u32, value: u32) -> u32 {
        let address = self.address_of(index);
        on! { ptx {
            let old: u32;
            // SAFETY: shared memory holds no Rust object.
            unsafe { core::arch::asm!("atom.acq_rel.cta.shared.cas.b32 {o}, [{p}], {e}, {v};", o = out(reg32) old, p = in(reg32) address, e = in(reg32) expected, v = in(reg32) value, options(nostack)) };
            old
        } emu { crate::emu::shared_atomic(address, |old| if old == expected { value } else { old }) } }
    }
}
