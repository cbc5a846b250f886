//! Shared memory: typed handles with 32-bit addresses.
//!
//! A generic pointer to shared memory compiles to generic loads, which are slow; a handle compiles to
//! `ld.shared` and `st.shared`. There are no references into shared memory: values go in and out.
//! The emulator checks every access: bounds of the handle, bytes never written, and races between
//! threads that no barrier orders.

use crate::memory::Word;
use core::marker::PhantomData;

/// `len` values of `T` in the block's shared memory.
pub struct Shared<T> {
    address: u32,
    len: u32,
    element: PhantomData<*mut T>,
}

impl<T> Clone for Shared<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<T> {}

/// `len` values at `byte_offset` in the dynamic shared memory of the launch, which begins at a
/// multiple of 128 bytes. The offset must be a multiple of the type's alignment.
#[inline(always)]
#[must_use]
pub fn dynamic<T: Word>(byte_offset: u32, len: u32) -> Shared<T> {
    on! { ptx {
        let base: u32;
        // SAFETY: takes an address.
        unsafe { core::arch::asm!("mov.u32 {a}, cuda_std_dynamic_shared;", a = out(reg32) base, options(pure, nomem, nostack)) };
        Shared::from_raw(base + byte_offset, len)
    } emu { Shared::from_raw(crate::emu::DYNAMIC_BASE + byte_offset, len) } }
}

#[cfg(target_arch = "nvptx64")]
core::arch::global_asm!(".extern .shared .align 128 .b8 cuda_std_dynamic_shared[];");

impl<T> Shared<T> {
    /// `len` values at an address in shared memory.
    #[inline(always)]
    #[must_use]
    pub const fn from_raw(address: u32, len: u32) -> Self {
        Self {
            address,
            len,
            element: PhantomData,
        }
    }

    /// The 32-bit address in shared memory.
    #[inline(always)]
    #[must_use]
    pub const fn address(self) -> u32 {
        self.address
    }

    /// How many values.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(self) -> u32 {
        self.len
    }

    /// The 32-bit address of value `index`.
    #[inline(always)]
    #[must_use]
    pub const fn address_of(self, index: u32) -> u32 {
        self.address + index * size_of::<T>() as u32
    }

    /// The `len` values from `start`.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn slice(self, start: u32, len: u32) -> Self {
        self.check(start, len);
        Self::from_raw(self.address_of(start), len)
    }

    /// The same bytes as values of another type. The emulator reports a misaligned address when it is used.
    #[inline(always)]
    #[must_use]
    pub const fn cast<U>(self) -> Shared<U> {
        Shared::from_raw(self.address, self.len * size_of::<T>() as u32 / size_of::<U>() as u32)
    }

    /// In the emulator, that `count` values from `start` lie inside.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check(self, start: u32, count: u32) {
        on! { ptx { let _ = (start, count); } emu {
            if u64::from(start) + u64::from(count) > u64::from(self.len) {
                crate::emu::shared_index_fault(start, count, self.len);
            }
        } }
    }
}

impl<T: Word> Shared<T> {
    /// `ld.shared`: value `index`; one vector instruction where `T` is a vector.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn load(self, index: u32) -> T {
        self.check(index, 1);
        T::read_shared(self.address_of(index))
    }

    /// `st.shared`: sets value `index`; one vector instruction where `T` is a vector.
    #[inline(always)]
    #[track_caller]
    pub fn store(self, index: u32, value: T) {
        self.check(index, 1);
        T::write_shared(self.address_of(index), value);
    }

    /// `ld.shared`: a wider value that begins at value `index`, aligned to its own size:
    /// `floats.load_as::<F32x4>(4)`.
    #[inline(always)]
    #[must_use]
    #[track_caller]
    pub fn load_as<U: Word>(self, index: u32) -> U {
        self.check(index, size_of::<U>().div_ceil(size_of::<T>()) as u32);
        U::read_shared(self.address_of(index))
    }

    /// `st.shared`: stores a wider value from value `index` on.
    #[inline(always)]
    #[track_caller]
    pub fn store_as<U: Word>(self, index: u32, value: U) {
        self.check(index, size_of::<U>().div_ceil(size_of::<T>()) as u32);
        U::write_shared(self.address_of(index), value);
    }
}

/// A block's static shared memory: `let sums = static_shared!(sums: [f32; 32]);` is a `Shared<f32>`
/// of 32 values, aligned to 16 bytes. The size is a constant without generic parameters; the name is
/// part of the PTX symbol. The crate needs `feature(asm_experimental_arch)` on the device.
#[macro_export]
macro_rules! static_shared {
    ($name:ident : [$ty:ty; $n:expr]) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            const _: () = assert!(($n) > 0);
            mod symbol {
                #[allow(unused_imports)]
                use super::*;
                ::core::arch::global_asm!(
                    concat!(".shared .align 16 .b8 shared_", stringify!($name), "_", line!(), "_", column!(), "[{}];"),
                    const ($n) * ::core::mem::size_of::<$ty>()
                );
            }
            let address: u32;
            // SAFETY: takes the address of the symbol defined above.
            unsafe {
                ::core::arch::asm!(
                    concat!("mov.u32 {a}, shared_", stringify!($name), "_", line!(), "_", column!(), ";"),
                    a = out(reg32) address, options(pure, nomem, nostack)
                )
            };
            $crate::shared::Shared::<$ty>::from_raw(address, ($n) as u32)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            const BYTES: usize = ($n) * ::core::mem::size_of::<$ty>();
            let key = concat!(file!(), ":", line!(), ":", column!());
            $crate::shared::Shared::<$ty>::from_raw($crate::emu::static_shared(key, BYTES as u32), ($n) as u32)
        }
    }};
}

pub use crate::static_shared;
