//! Values that one instruction loads or stores, and the instructions for global and shared memory.

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

macro_rules! vector {
    ($(#[$doc:meta])* $name:ident, $element:ty, $n:literal, $align:literal) => {
        $(#[$doc])*
        #[repr(C, align($align))]
        #[derive(Debug, Clone, Copy, Default, PartialEq)]
        pub struct $name(pub [$element; $n]);

        // SAFETY: an array of plain words whose size is its alignment: no padding, any bits valid.
        unsafe impl Zeroable for $name {}
        // SAFETY: as above.
        unsafe impl Pod for $name {}
    };
}
vector!(/** Two 32-bit words, loaded and stored as one 8-byte vector. */ U32x2, u32, 2, 8);
vector!(/** Four 32-bit words, loaded and stored as one 16-byte vector. */ U32x4, u32, 4, 16);
vector!(/** Two floats, loaded and stored as one 8-byte vector. */ F32x2, f32, 2, 8);
vector!(/** Four floats, loaded and stored as one 16-byte vector. */ F32x4, f32, 4, 16);

/// How a load or store treats the caches: the const parameter of [`Word`]'s methods.
pub(crate) mod op {
    pub const PLAIN: u8 = 0;
    pub const NC: u8 = 1;
    pub const READ_ONCE: u8 = 2;
    pub const CG: u8 = 3;
    pub const CA: u8 = 4;
    pub const CV: u8 = 5;
    pub const NC_KEEP: u8 = 6;
    pub const STREAM: u8 = 7;
}

/// A value that one load or store instruction moves: 1, 2, 4, 8 or 16 bytes, aligned to its size.
///
/// # Safety
/// Implemented here only: the instruction forms follow the type's size.
pub unsafe trait Word: Pod + sealed::Sealed {
    /// Loads from global memory; `OP` is one of `op`.
    #[doc(hidden)]
    unsafe fn read<const OP: u8>(from: *const Self) -> Self;
    /// Loads from global memory past L1, with an L2 eviction policy.
    #[doc(hidden)]
    unsafe fn read_policy(from: *const Self, policy: u64) -> Self;
    /// Stores to global memory; `OP` is one of `op`.
    #[doc(hidden)]
    unsafe fn write<const OP: u8>(to: *mut Self, value: Self);
    /// Stores to global memory with an L2 eviction policy.
    #[doc(hidden)]
    unsafe fn write_policy(to: *mut Self, value: Self, policy: u64);
    /// Loads from shared memory.
    #[doc(hidden)]
    fn read_shared(address: u32) -> Self;
    /// Stores to shared memory.
    #[doc(hidden)]
    fn write_shared(address: u32, value: Self);
    /// Loads from the cluster's shared memory.
    #[doc(hidden)]
    fn read_remote(address: u32) -> Self;
    /// Stores to the cluster's shared memory.
    #[doc(hidden)]
    fn write_remote(address: u32, value: Self);
}

/// A value that `st.async` moves: 4, 8 or 16 bytes.
pub trait AsyncWord: Word {
    /// Stores to the cluster's shared memory and signals the barrier there.
    #[doc(hidden)]
    fn write_async(address: u32, value: Self, barrier: u32);
}

mod sealed {
    pub trait Sealed {}
}

#[cfg(target_arch = "nvptx64")]
mod instruction {
    /// `load!(shape, instruction, class address)`, for every shape of value.
    macro_rules! load {
        (b8, $op:literal, $class:ident $p:expr $(, $policy:expr)?) => { load!(@one u8, $op, ".u8", reg32, u32, $class $p $(, $policy)?) as u8 };
        (b16, $op:literal, $class:ident $p:expr $(, $policy:expr)?) => { load!(@one u16, $op, ".b16", reg16, u16, $class $p $(, $policy)?) };
        (b32, $op:literal, $class:ident $p:expr $(, $policy:expr)?) => { load!(@one u32, $op, ".b32", reg32, u32, $class $p $(, $policy)?) };
        (b64, $op:literal, $class:ident $p:expr $(, $policy:expr)?) => { load!(@one u64, $op, ".b64", reg64, u64, $class $p $(, $policy)?) };
        (@one $ty:ty, $op:literal, $suffix:literal, $out:ident, $raw:ty, $class:ident $p:expr) => {{
            let r: $raw;
            core::arch::asm!(concat!($op, $suffix, " {r}, [{p}];"), r = out($out) r, p = in($class) $p, options(readonly, nostack));
            r
        }};
        (@one $ty:ty, $op:literal, $suffix:literal, $out:ident, $raw:ty, $class:ident $p:expr, $policy:expr) => {{
            let r: $raw;
            core::arch::asm!(concat!($op, $suffix, " {r}, [{p}], {c};"), r = out($out) r, p = in($class) $p, c = in(reg64) $policy, options(readonly, nostack));
            r
        }};
        (v2, $op:literal, $class:ident $p:expr) => {{
            let (x, y): (u32, u32);
            core::arch::asm!(concat!($op, ".v2.b32 {{{x}, {y}}}, [{p}];"), x = out(reg32) x, y = out(reg32) y, p = in($class) $p, options(readonly, nostack));
            [x, y]
        }};
        (v2, $op:literal, $class:ident $p:expr, $policy:expr) => {{
            let (x, y): (u32, u32);
            core::arch::asm!(concat!($op, ".v2.b32 {{{x}, {y}}}, [{p}], {c};"), x = out(reg32) x, y = out(reg32) y, p = in($class) $p, c = in(reg64) $policy, options(readonly, nostack));
            [x, y]
        }};
        (v4, $op:literal, $class:ident $p:expr) => {{
            let (x, y, z, w): (u32, u32, u32, u32);
            core::arch::asm!(concat!($op, ".v4.b32 {{{x}, {y}, {z}, {w}}}, [{p}];"), x = out(reg32) x, y = out(reg32) y, z = out(reg32) z, w = out(reg32) w, p = in($class) $p, options(readonly, nostack));
            [x, y, z, w]
        }};
        (v4, $op:literal, $class:ident $p:expr, $policy:expr) => {{
            let (x, y, z, w): (u32, u32, u32, u32);
            core::arch::asm!(concat!($op, ".v4.b32 {{{x}, {y}, {z}, {w}}}, [{p}], {c};"), x = out(reg32) x, y = out(reg32) y, z = out(reg32) z, w = out(reg32) w, p = in($class) $p, c = in(reg64) $policy, options(readonly, nostack));
            [x, y, z, w]
        }};
    }

    /// `store!(shape, instruction, class address, bits)`, for every shape of value.
    macro_rules! store {
        (b8, $op:literal, $class:ident $p:expr, $v:expr $(, $policy:expr)?) => {{ let v: u8 = $v; store!(@one $op, ".u8", reg32, v as u32, $class $p $(, $policy)?) }};
        (b16, $op:literal, $class:ident $p:expr, $v:expr $(, $policy:expr)?) => {{ let v: u16 = $v; store!(@one $op, ".b16", reg16, v, $class $p $(, $policy)?) }};
        (b32, $op:literal, $class:ident $p:expr, $v:expr $(, $policy:expr)?) => {{ let v: u32 = $v; store!(@one $op, ".b32", reg32, v, $class $p $(, $policy)?) }};
        (b64, $op:literal, $class:ident $p:expr, $v:expr $(, $policy:expr)?) => {{ let v: u64 = $v; store!(@one $op, ".b64", reg64, v, $class $p $(, $policy)?) }};
        (@one $op:literal, $suffix:literal, $in:ident, $v:expr, $class:ident $p:expr) => {
            core::arch::asm!(concat!($op, $suffix, " [{p}], {v};"), v = in($in) $v, p = in($class) $p, options(nostack))
        };
        (@one $op:literal, $suffix:literal, $in:ident, $v:expr, $class:ident $p:expr, $policy:expr) => {
            core::arch::asm!(concat!($op, $suffix, " [{p}], {v}, {c};"), v = in($in) $v, p = in($class) $p, c = in(reg64) $policy, options(nostack))
        };
        (v2, $op:literal, $class:ident $p:expr, $v:expr) => {{
            let v: [u32; 2] = $v;
            core::arch::asm!(concat!($op, ".v2.b32 [{p}], {{{x}, {y}}};"), x = in(reg32) v[0], y = in(reg32) v[1], p = in($class) $p, options(nostack))
        }};
        (v2, $op:literal, $class:ident $p:expr, $v:expr, $policy:expr) => {{
            let v: [u32; 2] = $v;
            core::arch::asm!(concat!($op, ".v2.b32 [{p}], {{{x}, {y}}}, {c};"), x = in(reg32) v[0], y = in(reg32) v[1], p = in($class) $p, c = in(reg64) $policy, options(nostack))
        }};
        (v4, $op:literal, $class:ident $p:expr, $v:expr) => {{
            let v: [u32; 4] = $v;
            core::arch::asm!(concat!($op, ".v4.b32 [{p}], {{{x}, {y}, {z}, {w}}};"), x = in(reg32) v[0], y = in(reg32) v[1], z = in(reg32) v[2], w = in(reg32) v[3], p = in($class) $p, options(nostack))
        }};
        (v4, $op:literal, $class:ident $p:expr, $v:expr, $policy:expr) => {{
            let v: [u32; 4] = $v;
            core::arch::asm!(concat!($op, ".v4.b32 [{p}], {{{x}, {y}, {z}, {w}}}, {c};"), x = in(reg32) v[0], y = in(reg32) v[1], z = in(reg32) v[2], w = in(reg32) v[3], p = in($class) $p, c = in(reg64) $policy, options(nostack))
        }};
    }

    /// `store_async!(shape, instruction, address, bits, barrier)`, for the shapes that `st.async` has.
    macro_rules! store_async {
        (b32, $op:literal, $p:expr, $v:expr, $m:expr) => {{ let v: u32 = $v; store_async!(@one $op, ".b32", reg32, v, $p, $m) }};
        (b64, $op:literal, $p:expr, $v:expr, $m:expr) => {{ let v: u64 = $v; store_async!(@one $op, ".b64", reg64, v, $p, $m) }};
        (@one $op:literal, $suffix:literal, $in:ident, $v:expr, $p:expr, $m:expr) => {
            core::arch::asm!(concat!($op, $suffix, " [{p}], {v}, [{m}];"), v = in($in) $v, p = in(reg32) $p, m = in(reg32) $m, options(nostack))
        };
        (v2, $op:literal, $p:expr, $v:expr, $m:expr) => {{
            let v: [u32; 2] = $v;
            core::arch::asm!(concat!($op, ".v2.b32 [{p}], {{{x}, {y}}}, [{m}];"), x = in(reg32) v[0], y = in(reg32) v[1], p = in(reg32) $p, m = in(reg32) $m, options(nostack))
        }};
        (v4, $op:literal, $p:expr, $v:expr, $m:expr) => {{
            let v: [u32; 4] = $v;
            core::arch::asm!(concat!($op, ".v4.b32 [{p}], {{{x}, {y}, {z}, {w}}}, [{m}];"), x = in(reg32) v[0], y = in(reg32) v[1], z = in(reg32) v[2], w = in(reg32) v[3], p = in(reg32) $p, m = in(reg32) $m, options(nostack))
        }};
    }
    pub(super) use {load, store, store_async};
}
#[cfg(target_arch = "nvptx64")]
use instruction::{load, store, store_async};

#[cfg(target_arch = "nvptx64")]
macro_rules! word {
    ($ty:ty, $shape:ident) => {
        impl sealed::Sealed for $ty {}
        // SAFETY: the shape has the type's size.
        unsafe impl Word for $ty {
            #[inline(always)]
            unsafe fn read<const OP: u8>(from: *const Self) -> Self {
                // SAFETY: the caller's: `from` may be read.
                unsafe {
                    bytemuck::must_cast(match OP {
                        op::NC => load!($shape, "ld.global.nc", reg64 from),
                        op::READ_ONCE => load!($shape, "ld.global.L1::no_allocate", reg64 from),
                        op::CG => load!($shape, "ld.global.cg", reg64 from),
                        op::CA => load!($shape, "ld.global.ca", reg64 from),
                        op::CV => load!($shape, "ld.volatile.global", reg64 from),
                        op::NC_KEEP => load!($shape, "ld.global.nc.L1::evict_last", reg64 from),
                        _ => load!($shape, "ld.global", reg64 from),
                    })
                }
            }
            #[inline(always)]
            unsafe fn read_policy(from: *const Self, policy: u64) -> Self {
                // SAFETY: the caller's: `from` may be read.
                unsafe { bytemuck::must_cast(load!($shape, "ld.global.L1::no_allocate.L2::cache_hint", reg64 from, policy)) }
            }
            #[inline(always)]
            unsafe fn write<const OP: u8>(to: *mut Self, value: Self) {
                let bits = bytemuck::must_cast(value);
                // SAFETY: the caller's: `to` may be written.
                unsafe {
                    match OP {
                        op::CG => store!($shape, "st.global.cg", reg64 to, bits),
                        op::STREAM => store!($shape, "st.global.cs", reg64 to, bits),
                        op::CV => store!($shape, "st.volatile.global", reg64 to, bits),
                        _ => store!($shape, "st.global", reg64 to, bits),
                    }
                }
            }
            #[inline(always)]
            unsafe fn write_policy(to: *mut Self, value: Self, policy: u64) {
                // SAFETY: the caller's: `to` may be written.
                unsafe { store!($shape, "st.global.L2::cache_hint", reg64 to, bytemuck::must_cast(value), policy) }
            }
            #[inline(always)]
            fn read_shared(address: u32) -> Self {
                // SAFETY: shared memory holds no Rust object; an address outside the block's faults.
                unsafe { bytemuck::must_cast(load!($shape, "ld.shared", reg32 address)) }
            }
            #[inline(always)]
            fn write_shared(address: u32, value: Self) {
                // SAFETY: as above.
                unsafe { store!($shape, "st.shared", reg32 address, bytemuck::must_cast(value)) }
            }
            #[inline(always)]
            fn read_remote(address: u32) -> Self {
                // SAFETY: as above, for the cluster.
                unsafe { bytemuck::must_cast(load!($shape, "ld.shared::cluster", reg32 address)) }
            }
            #[inline(always)]
            fn write_remote(address: u32, value: Self) {
                // SAFETY: as above, for the cluster.
                unsafe { store!($shape, "st.shared::cluster", reg32 address, bytemuck::must_cast(value)) }
            }
        }
    };
}

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! word {
    ($ty:ty, $shape:ident) => {
        impl sealed::Sealed for $ty {}
        // SAFETY: the emulator reads and writes values of the type itself.
        unsafe impl Word for $ty {
            #[track_caller]
            unsafe fn read<const OP: u8>(from: *const Self) -> Self {
                // SAFETY: the caller's: `from` may be read.
                unsafe { crate::emu::global_read(from) }
            }
            #[track_caller]
            unsafe fn read_policy(from: *const Self, _: u64) -> Self {
                // SAFETY: the caller's: `from` may be read.
                unsafe { crate::emu::global_read(from) }
            }
            #[track_caller]
            unsafe fn write<const OP: u8>(to: *mut Self, value: Self) {
                // SAFETY: the caller's: `to` may be written.
                unsafe { crate::emu::global_write(to, value) }
            }
            #[track_caller]
            unsafe fn write_policy(to: *mut Self, value: Self, _: u64) {
                // SAFETY: the caller's: `to` may be written.
                unsafe { crate::emu::global_write(to, value) }
            }
            #[track_caller]
            fn read_shared(address: u32) -> Self {
                crate::emu::shared_read(address)
            }
            #[track_caller]
            fn write_shared(address: u32, value: Self) {
                crate::emu::shared_write(address, value)
            }
            #[track_caller]
            fn read_remote(address: u32) -> Self {
                crate::emu::remote_read(address)
            }
            #[track_caller]
            fn write_remote(address: u32, value: Self) {
                crate::emu::remote_write(address, value)
            }
        }
    };
}

word!(u8, b8);
word!(i8, b8);
word!(u16, b16);
word!(i16, b16);
word!(f16, b16);
word!(bf16, b16);
word!(u32, b32);
word!(i32, b32);
word!(f32, b32);
word!(u64, b64);
word!(i64, b64);
word!(U32x2, v2);
word!(F32x2, v2);
word!(U32x4, v4);
word!(F32x4, v4);

macro_rules! async_words {
    ($($ty:ty, $shape:ident;)*) => {$(
        impl AsyncWord for $ty {
            #[inline(always)]
            #[track_caller]
            fn write_async(address: u32, value: Self, barrier: u32) {
                on! { ptx {
                    // SAFETY: the cluster's shared memory holds no Rust object; an address outside faults.
                    unsafe { store_async!($shape, "st.async.shared::cluster.mbarrier::complete_tx::bytes", address, bytemuck::must_cast(value), barrier) }
                } emu { crate::emu::remote_write_async(address, value, barrier) } }
            }
        }
    )*};
}
async_words! {
    u32, b32;
    i32, b32;
    f32, b32;
    u64, b64;
    i64, b64;
    U32x2, v2;
    F32x2, v2;
    U32x4, v4;
    F32x4, v4;
}
