//! A place in shared memory from which blocks of a row are read, whatever their alignment.

use crate::num::half;
use cuda_std::prelude::*;

/// A place in shared memory, at any byte.
#[derive(Clone, Copy)]
pub struct Cursor {
    /// Begins at a multiple of 16.
    pub memory: Shared<u8>,
    /// Where the row begins, in bytes from there.
    pub start: u32,
    /// Bytes from there: mostly constant.
    pub bytes: u32,
    /// Whether the row is known to begin at a multiple of four: constant where it is.
    pub aligned: bool,
}

impl Cursor {
    /// `bytes` further.
    #[inline(always)]
    pub fn past(self, bytes: u32) -> Self {
        Self {
            bytes: self.bytes + bytes,
            ..self
        }
    }

    /// The byte here.
    #[inline(always)]
    pub fn byte(self) -> u32 {
        u32::from(self.memory.load(self.start + self.bytes))
    }

    /// The signed byte here.
    #[inline(always)]
    pub fn signed_byte(self) -> i32 {
        i32::from(self.memory.load_as::<i8>(self.start + self.bytes))
    }

    /// The 16 bits here, aligned to 2.
    #[inline(always)]
    pub fn short(self) -> u32 {
        u32::from(self.memory.load_as::<u16>(self.start + self.bytes))
    }

    /// The f16 here, aligned to 2.
    #[inline(always)]
    pub fn half(self) -> f32 {
        half(self.short())
    }

    /// The word here, aligned to 4.
    #[inline(always)]
    pub fn word(self) -> u32 {
        self.memory.load_as(self.start + self.bytes)
    }

    /// The 16 bits here and the next, aligned to 2.
    #[inline(always)]
    pub fn shorts(self) -> [u32; 2] {
        [self.short(), self.past(2).short()]
    }

    /// The word here, aligned to 2.
    #[inline(always)]
    pub fn word_even(self) -> u32 {
        if self.aligned && self.bytes.is_multiple_of(4) {
            return self.word();
        }
        let [low, high] = self.shorts();
        dot::permute_bytes(low, high, 0x5410)
    }

    /// Word `n` from here on, at any byte but the memory's first: put together from two aligned ones, of which the first
    /// begins below it.
    #[inline(always)]
    pub fn word_anywhere(self, n: u32) -> u32 {
        // What depends on where the row begins is the same for places a multiple of four apart.
        let (constant, whole) = (self.bytes % 4, self.bytes / 4 * 4 + 4 * n);
        if self.aligned {
            let word = |at: u32| self.memory.load_as::<u32>(self.start + whole + at);
            return match constant {
                0 => word(0),
                _ => dot::permute_bytes(word(0), word(4), 0x3210 + 0x1111 * constant),
            };
        }
        let odd = self.start + constant;
        let second = (odd + 3) & !3;
        let word = |at: u32| self.memory.load_as::<u32>(at.wrapping_add(whole));
        // As odd + 4 − second, but by the lowest bits alone, which rows share.
        let bytes = 4 - (odd.wrapping_neg() & 3);
        dot::permute_bytes(word(second.wrapping_sub(4)), word(second), 0x3210 + 0x1111 * bytes)
    }

    /// Four words, aligned to 16.
    #[inline(always)]
    pub fn vector(self) -> [u32; 4] {
        self.memory.load_as::<U32x4>(self.start + self.bytes).0
    }
}
