//! Where a warp's tiles come from, one after another.
//!
//! A warp that loads its next tile behind a product waits for most of the load, unless the other warps of the
//! multiprocessor have products enough meanwhile: so it is for types whose products take less than half as long as their bytes
//! ([`Direct`]). Where they take longer, two more tiles are on their way through shared memory during each product ([`Ring`]),
//! without a register.

use super::work::{Place, Work};
use crate::tile::Tile;
use cuda_std::prelude::*;

/// A warp's tiles in the order of [`Work::after`].
pub trait Supply<T: Tile>: Copy {
    /// Bytes of shared memory of a warp.
    const BYTES: u32;

    /// Sends for the first tiles; `shared` is the offset of the warp's own shared memory.
    ///
    /// # Safety
    /// The tile at `first` exists.
    unsafe fn start(work: &Work, first: Place, shared: u32) -> Self;

    /// The tile at `at`. All lanes of the warp call this together.
    ///
    /// # Safety
    /// `at` is where the last call's `next` led to, or the first.
    unsafe fn take(&mut self, work: &Work, at: Place) -> T;

    /// To be called behind the product: `next` follows the tile taken last.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    unsafe fn taken(&mut self, work: &Work, next: Place);
}

/// One tile, in registers, loaded as soon as the last one is multiplied.
#[derive(Clone, Copy)]
pub struct Direct<T>(T);

impl<T: Tile> Supply<T> for Direct<T> {
    const BYTES: u32 = 0;

    #[inline(always)]
    unsafe fn start(work: &Work, first: Place, _shared: u32) -> Self {
        // SAFETY: the caller's.
        Self(unsafe { load(work, first) })
    }

    #[inline(always)]
    unsafe fn take(&mut self, _work: &Work, _at: Place) -> T {
        self.0
    }

    #[inline(always)]
    unsafe fn taken(&mut self, work: &Work, next: Place) {
        if work.has(next) {
            // SAFETY: the tile exists.
            self.0 = unsafe { load(work, next) };
        }
    }
}

/// # Safety
/// The row group of `at` exists.
#[inline(always)]
unsafe fn load<T: Tile>(work: &Work, at: Place) -> T {
    if work.in_row(at) {
        // SAFETY: the tile exists.
        unsafe { T::load(at.tile, work.lane) }
    } else {
        T::zero()
    }
}

/// Two tiles in shared memory: while one is multiplied, from registers, the next two are on their way.
#[derive(Clone, Copy)]
pub struct Ring {
    /// Offsets of the slots of the next tile and of the one behind it.
    slots: [u32; 2],
    /// The first tile that is not sent for.
    ahead: Place,
}

impl Ring {
    /// Sends for the tile at `ahead`, if there is one; a group of copies in any case, so that groups count tiles.
    #[inline(always)]
    unsafe fn send<T: Tile>(&mut self, work: &Work, slot: u32) {
        const { assert!(T::BYTES.is_multiple_of(16)) };
        if work.has(self.ahead) && work.in_row(self.ahead) {
            let (to, from) = (
                slot_of::<T>(slot).address_of(16 * work.lane),
                self.ahead.tile.wrapping_add(16 * work.lane as usize),
            );
            unroll!(for K in 0..5 {
                if 512 * K + 16 * work.lane as usize + 16 <= T::BYTES {
                    // SAFETY: the tile exists and has these sixteen bytes, its slot too.
                    unsafe { copy::async_16(to + 512 * K as u32, from.wrapping_add(512 * K)) };
                }
            });
        }
        copy::commit();
        self.ahead = work.after(self.ahead);
    }
}

/// The slot at an offset into dynamic shared memory.
#[inline(always)]
fn slot_of<T: Tile>(offset: u32) -> Shared<u8> {
    shared::dynamic(offset, T::BYTES as u32)
}

impl<T: Tile> Supply<T> for Ring {
    const BYTES: u32 = 2 * T::BYTES as u32;

    #[inline(always)]
    unsafe fn start(work: &Work, first: Place, shared: u32) -> Self {
        const { assert!(T::BYTES <= 5 * 512) };
        let mut ring = Self {
            slots: [shared, shared + T::BYTES as u32],
            ahead: first,
        };
        // SAFETY: the warp's own shared memory, which nobody reads yet.
        unsafe {
            ring.send::<T>(work, ring.slots[0]);
            ring.send::<T>(work, ring.slots[1]);
        }
        ring
    }

    #[inline(always)]
    unsafe fn take(&mut self, work: &Work, at: Place) -> T {
        let [slot, other] = self.slots;
        // Each lane waits for what it copied, then for the others.
        copy::wait::<1>();
        warp::sync();
        let tile = if work.in_row(at) {
            // SAFETY: the tile has come whole.
            unsafe { T::load(slot_of::<T>(slot), work.lane) }
        } else {
            T::zero()
        };
        // Until all lanes have read it.
        warp::sync();
        // SAFETY: the slot is free.
        unsafe { self.send::<T>(work, slot) };
        self.slots = [other, slot];
        tile
    }

    #[inline(always)]
    unsafe fn taken(&mut self, _work: &Work, _next: Place) {}
}
