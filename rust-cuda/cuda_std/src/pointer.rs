//! Addresses in a device's memory, as the host handles them.

use core::marker::PhantomData;

/// An address in device memory: an integer with a type. Nothing is owned, and nothing is
/// dereferenced on the host; in the emulator it is a host address.
///
/// Arithmetic counts elements of `T`, as with a raw pointer, and wraps.
#[repr(transparent)]
pub struct DevicePtr<T> {
    address: u64,
    pointee: PhantomData<fn(T)>,
}

impl<T> DevicePtr<T> {
    /// The pointer at `address`.
    #[inline]
    #[must_use]
    pub const fn from_raw(address: u64) -> Self {
        Self {
            address,
            pointee: PhantomData,
        }
    }

    /// The null pointer, for arguments that a kernel is told not to use.
    #[inline]
    #[must_use]
    pub const fn null() -> Self {
        Self::from_raw(0)
    }

    /// The address.
    #[inline]
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.address
    }

    /// Whether it is the null pointer.
    #[inline]
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.address == 0
    }

    /// The pointer `count` elements further.
    #[inline]
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub const fn add(self, count: usize) -> Self {
        self.byte_add(count.wrapping_mul(size_of::<T>()))
    }

    /// The pointer `bytes` bytes further.
    #[inline]
    #[must_use]
    pub const fn byte_add(self, bytes: usize) -> Self {
        Self::from_raw(self.address.wrapping_add(bytes as u64))
    }

    /// The same address with another element type.
    #[inline]
    #[must_use]
    pub const fn cast<U>(self) -> DevicePtr<U> {
        DevicePtr::from_raw(self.address)
    }

    /// The raw pointer, to be dereferenced in a kernel only.
    #[inline(always)]
    #[must_use]
    pub const fn as_ptr(self) -> *const T {
        core::ptr::with_exposed_provenance(self.address as usize)
    }

    /// The raw pointer, to be written through in a kernel only.
    #[inline(always)]
    #[must_use]
    pub const fn as_mut_ptr(self) -> *mut T {
        core::ptr::with_exposed_provenance_mut(self.address as usize)
    }
}

// By hand: a derive would ask the same of `T`.
impl<T> Clone for DevicePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for DevicePtr<T> {}
impl<T> PartialEq for DevicePtr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}
impl<T> Eq for DevicePtr<T> {}
impl<T> core::fmt::Debug for DevicePtr<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.address)
    }
}

// SAFETY: one u64 and nothing else; every bit pattern is a value, and zero is the null pointer.
unsafe impl<T: 'static> bytemuck::Zeroable for DevicePtr<T> {}
// SAFETY: as above: no padding, no invalid bit pattern, Copy and 'static.
unsafe impl<T: 'static> bytemuck::Pod for DevicePtr<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_counts_elements() {
        let p = DevicePtr::<u32>::from_raw(0x100);
        assert_eq!(p.add(3).as_raw(), 0x10c);
        assert_eq!(p.byte_add(3).cast::<u8>().as_raw(), 0x103);
        assert!(DevicePtr::<f32>::null().is_null());
    }
}
