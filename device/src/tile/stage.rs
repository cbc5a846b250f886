//! A warp's tile on its way through shared memory.
//!
//! Weights that wait in registers for their activations keep other blocks off the multiprocessor, those of the next
//! launch before all: it cannot begin to load. In shared memory there is room for both.

use super::Tile;
use cuda_std::prelude::*;

/// Room for a tile of one warp.
#[derive(Clone, Copy)]
pub struct Stage(Shared<u8>);

/// Bytes that a lane copies at once.
const CHUNK: u32 = 16;

impl Stage {
    /// The warp's room among those of its block's warps, `bytes` each (a multiple of 16, enough for the tile), the first
    /// at `offset` bytes into dynamic shared memory, a multiple of 16.
    #[inline(always)]
    pub fn of_warp(warp: u32, offset: u32, bytes: u32) -> Self {
        Self(shared::dynamic(offset + warp * bytes, bytes))
    }

    /// Starts to copy a tile. What was there before must have been read by all lanes.
    ///
    /// # Safety
    /// `tile` points to a whole tile of type `T`, aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn start<T: Tile>(self, tile: *const u8, lane: u32) {
        let chunks = T::BYTES as u32 / CHUNK;
        unroll!(for I in 0..8 {
            let chunk = 32 * I as u32 + lane;
            if 32 * (I as u32) < chunks && (32 * (I as u32 + 1) <= chunks || chunk < chunks) {
                let at = CHUNK * chunk;
                // SAFETY: the caller's; the chunk lies in the tile.
                unsafe { copy::async_16(self.0.address_of(at), tile.add(at as usize)) };
            }
        });
        copy::commit();
    }

    /// Waits for all copies of the warp. All lanes call this together.
    #[inline(always)]
    pub fn wait() {
        copy::wait::<0>();
        warp::sync();
    }

    /// The lane's share of the tile; behind [`wait`](Self::wait).
    #[inline(always)]
    pub fn tile<T: Tile>(self, lane: u32) -> T {
        // SAFETY: the copied tile is whole.
        unsafe { T::load(self.0, lane) }
    }
}
