//! Weights of a block on their way through shared memory.
//!
//! Weights that wait in registers for their activations keep other blocks off the multiprocessor, those of the next
//! launch before all, which then cannot begin to load. In shared memory there is room for both, and a bulk copy takes one
//! thread one instruction.

use super::Tile;
use cuda_std::arch::HAS_BULK_COPY;
use cuda_std::mbarrier::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// Shared memory for the weights of one block, and the barrier that counts their bytes.
#[derive(Clone, Copy)]
pub struct Stage {
    tiles: Shared<u8>,
    arrived: Barrier,
}

impl Stage {
    /// Bytes of shared memory before the weights.
    pub const HEAD: u32 = 16;

    /// The stage at `offset` bytes into dynamic shared memory, a multiple of 16, with room for `bytes` of weights.
    #[inline(always)]
    pub fn at(offset: u32, bytes: u32) -> Self {
        Self {
            tiles: shared::dynamic(offset + Self::HEAD, bytes),
            arrived: Barrier::at(shared::dynamic(offset, 1), 0),
        }
    }

    /// Makes the stage ready for `bytes` bytes. One thread calls this, before all others meet it at a barrier.
    #[inline(always)]
    pub fn expect(self, bytes: u32) {
        self.arrived.init(1);
        mbarrier::fence_init();
        if HAS_BULK_COPY {
            self.arrived.arrive_expect(bytes);
        }
    }

    /// Starts to copy `parts` parts of `bytes` bytes each, a multiple of 16, one behind the other; part `p` lies at
    /// `from(p)`. All threads of the block call this; where there are bulk copies thread `p` copies part `p`, so there
    /// must be as many threads, and only thread 0 need have met [`expect`](Self::expect) if there is one part.
    ///
    /// # Safety
    /// Every part is readable and aligned to 16 bytes, and the stage has room for all.
    #[inline(always)]
    pub unsafe fn copy(self, parts: u32, bytes: u32, from: impl Fn(u32) -> *const u8) {
        let thread = thread::thread_idx_x();
        if HAS_BULK_COPY {
            if thread < parts {
                // SAFETY: the caller's.
                unsafe {
                    let to = self.tiles.address_of(thread * bytes);
                    copy::bulk_policy(
                        to,
                        from(thread),
                        bytes,
                        self.arrived,
                        global::CachePolicy::evict_first(),
                    );
                };
            }
            return;
        }
        let (mut part, chunk, step) = (0, 16 * thread, 16 * thread::block_dim_x());
        while part < parts {
            let mut at = chunk;
            while at < bytes {
                // SAFETY: the caller's; the sixteen bytes lie within the part.
                unsafe { copy::async_16(self.tiles.address_of(part * bytes + at), from(part).add(at as usize)) };
                at = rolled(at + step);
            }
            part = rolled(part + 1);
        }
    }

    /// Waits until all has come. All threads of the block call this, behind a barrier that is behind [`expect`](Self::expect).
    #[inline(always)]
    pub fn wait(self) {
        if HAS_BULK_COPY {
            self.arrived.wait(0);
        } else {
            copy::commit();
            copy::wait::<0>();
            thread::sync_threads();
        }
    }

    /// The lane's share of tile `number`; behind [`wait`](Self::wait).
    #[inline(always)]
    pub fn tile<T: Tile>(self, number: u32, lane: u32) -> T {
        let bytes = T::BYTES as u32;
        // SAFETY: the copied tile is whole.
        unsafe { T::load(self.tiles.slice(number * bytes, bytes), lane) }
    }
}
