//! The values of a kernel's arguments, in storage of their own.

use bytemuck::NoUninit;
use core::ffi::c_void;

/// Argument values of one launch, each aligned as its type asks.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    // 16-byte words, so that offsets give the alignment of every type up to 16 bytes.
    storage: Vec<u128>,
    offsets: Vec<u32>,
    used: usize,
}

impl Arguments {
    /// No arguments yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a value. Its bytes are what the GPU gets, so that a type with padding does not compile:
    ///
    /// ```compile_fail,E0277
    /// cuda_std::launch::Arguments::new().push((1u8, 2u32));
    /// ```
    pub fn push<T: NoUninit>(&mut self, value: T) {
        const {
            assert!(
                align_of::<T>() <= 16,
                "kernel arguments are aligned to at most 16 bytes"
            )
        };
        let offset = self.used.next_multiple_of(align_of::<T>());
        self.used = offset + size_of::<T>();
        self.storage.resize(self.used.div_ceil(16), 0);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.storage);
        bytes[offset..self.used].copy_from_slice(bytemuck::bytes_of(&value));
        self.offsets.push(offset as u32);
    }

    /// How many values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The bytes of all values, with the padding between them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.storage)[..self.used]
    }

    /// A pointer to each value: what `cuLaunchKernel` takes as `kernelParams`. They live as long as
    /// `self` is neither moved in memory by growth nor dropped.
    #[must_use]
    pub fn pointers(&self) -> Vec<*const c_void> {
        let base = self.storage.as_ptr().cast::<u8>();
        self.offsets
            .iter()
            .map(|&offset| base.wrapping_add(offset as usize).cast())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_and_readable() {
        let mut arguments = Arguments::new();
        arguments.push(7u8);
        arguments.push(0x1122_3344_5566_7788u64);
        arguments.push(1.5f32);
        assert_eq!(arguments.len(), 3);
        assert_eq!(arguments.bytes().len(), 20);
        let pointers = arguments.pointers();
        assert!(pointers[1].cast::<u64>().is_aligned());
        assert_eq!(arguments.bytes()[8..16], 0x1122_3344_5566_7788u64.to_le_bytes());
    }
}
