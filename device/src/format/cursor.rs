//! A place in shared memory from which blocks of a row are read, whatever their alignment.

use crate::num::half;
use cuda_std::prelude::*;

/// A place in shared memory, at any byte.
#[derive(Clone, Copy)]
pub struct Cursor {
    /// Begins at a multiple of 16.
    pub memory: Shared<u8>,
    /// Bytes from there.
    pub at: u32,
}

impl Cursor {
    /// `bytes` further.
    #[inline(always)]
    pub fn past(self, bytes: u32) -> Self {
        Self {
            memory: self.memory,
            at: self.at + bytes,
        }
    }

    /// The byte here.
    #[inline(always)]
    pub fn byte(self) -> u32 {
        u32::from(self.memory.load(self.at))
    }

    /// The signed byte here.
    #[inline(always)]
    pub fn signed_byte(self) -> i32 {
        i32::from(self.memory.load_as::<i8>(self.at))
    }

    /// The 16 bits here, aligned to 2.
    #[inline(always)]
    pub fn short(self) -> u32 {
        u32::from(self.memory.load_as::<u16>(self.at))
    }

    /// The f16 here, aligned to 2.
    #[inline(always)]
    pub fn half(self) -> f32 {
        half(self.short())
    }

    /// The word here, aligned to 4.
    #[inline(always)]
    pub fn word(self) -> u32 {
        self.memory.load_as(self.at)
    }

    /// The word here, aligned to 2.
    #[inline(always)]
    pub fn word_even(self) -> u32 {
        dot::permute_bytes(self.short(), self.past(2).short(), 0x5410)
    }

    /// The word here, at any byte but the memory's first: put together from two aligned ones, of which the first begins
    /// below it.
    #[inline(always)]
    pub fn word_anywhere(self) -> u32 {
        // The second of the two is the one that the last byte is in, which is there.
        let second = Self {
            at: (self.at + 3) & !3,
            ..self
        };
        let first = Self {
            at: second.at - 4,
            ..self
        };
        let from = self.at - first.at;
        dot::permute_bytes(first.word(), second.word(), 0x3210 + 0x1111 * from)
    }

    /// Four words, aligned to 16.
    #[inline(always)]
    pub fn vector(self) -> [u32; 4] {
        self.memory.load_as::<U32x4>(self.at).0
    }
}
