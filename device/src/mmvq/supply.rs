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
    /// Whether rows of one tile a warp are worth a loop of their own.
    const SHORT: bool;

    /// Sends for the first tiles; `shared` is the offset of the warp's own shared memory.
    ///
    /// # Safety
    /// The tile at `first` exists.
    unsafe fn start<const LONG: bool>(work: &Work<LONG>, first: Place, shared: u32) -> Self;

    /// The tile at `at`. All lanes of the warp call this together.
    ///
    /// # Safety
    /// `at` is where the last call's `next` led to, or the first.
    unsafe fn take<const LONG: bool>(&mut self, work: &Work<LONG>, at: Place) -> T;

    /// To be called behind the product: `next` follows the tile taken last.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    unsafe fn taken<const LONG: bool>(&mut self, work: &Work<LONG>, next: Place);
}

/// One tile, in registers, loaded as soon as the last one is multiplied.
#[derive(Clone, Copy)]
pub struct Direct<T>(T);

impl<T: Tile> Supply<T> for Direct<T> {
    const BYTES: u32 = 0;
    const SHORT: bool = false;

    #[inline(always)]
    unsafe fn start<const LONG: bool>(work: &Work<LONG>, first: Place, _shared: u32) -> Self {
        // SAFETY: the caller's.
        Self(unsafe { load(work, first) })
    }

    #[inline(always)]
    unsafe fn take<const LONG: bool>(&mut self, _work: &Work<LONG>, _at: Place) -> T {
        self.0
    }

    #[inline(always)]
    unsafe fn taken<const LONG: bool>(&mut self, work: &Work<LONG>, next: Place) {
        if work.has(next) {
            // SAFETY: the tile exists.
            self.0 = unsafe { load(work, next) };
        }
    }
}

/// # Safety
/// The row group of `at` exists.
#[inline(always)]
unsafe fn load<T: Tile, const LONG: bool>(work: &Work<LONG>, at: Place) -> T {
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
    /// Offset of the next tile's slot.
    slot: u32,
    /// What leads from one slot's offset to the other's.
    turn: u32,
    /// The first tile that is not sent for.
    ahead: Place,
}

impl Ring {
    /// Sends for the tile at `ahead`, if there is one; a group of copies in any case, so that groups count tiles.
    #[inline(always)]
    unsafe fn send<T: Tile, const LONG: bool>(&mut self, work: &Work<LONG>, slot: u32) {
        const { assert!(T::BYTES.is_multiple_of(16) && T::BYTES <= 5 * 512) };
        if work.has(self.ahead) && work.in_row(self.ahead) {
            let to = slot_of::<T>(slot).address_of(16 * work.lane);
            unroll!(for K in 0..5 {
                if 512 * K < T::BYTES {
                    // Where the tile ends the last lanes copy its end once more: cheaper than a branch around it.
                    let at = 512 * K + 16 * (work.lane as usize).min((T::BYTES - 512 * K) / 16 - 1);
                    // SAFETY: the tile exists and has these sixteen bytes, the slot all that lanes copy.
                    unsafe { copy::async_16(to + 512 * K as u32, self.ahead.tile.wrapping_add(at)) };
                }
            });
        }
        copy::commit();
        self.ahead = work.after(self.ahead);
    }
}

/// Bytes of a slot: a tile in whole vectors.
const fn slot_bytes<T: Tile>() -> u32 {
    (T::BYTES as u32).next_multiple_of(512)
}

/// The slot at an offset into dynamic shared memory.
#[inline(always)]
fn slot_of<T: Tile>(offset: u32) -> Shared<u8> {
    shared::dynamic(offset, slot_bytes::<T>())
}

impl<T: Tile> Supply<T> for Ring {
    const BYTES: u32 = 2 * slot_bytes::<T>();
    const SHORT: bool = true;

    #[inline(always)]
    unsafe fn start<const LONG: bool>(work: &Work<LONG>, first: Place, shared: u32) -> Self {
        let mut ring = Self {
            slot: shared,
            turn: shared ^ (shared + slot_bytes::<T>()),
            ahead: first,
        };
        // SAFETY: the warp's own shared memory, which nobody reads yet.
        unsafe {
            ring.send::<T, LONG>(work, ring.slot);
            ring.send::<T, LONG>(work, ring.slot ^ ring.turn);
        }
        ring
    }

    #[inline(always)]
    unsafe fn take<const LONG: bool>(&mut self, work: &Work<LONG>, at: Place) -> T {
        let slot = self.slot;
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
        unsafe { self.send::<T, LONG>(work, slot) };
        self.slot ^= self.turn;
        tile
    }

    #[inline(always)]
    unsafe fn taken<const LONG: bool>(&mut self, _work: &Work<LONG>, _next: Place) {}
}
