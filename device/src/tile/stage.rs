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
        self.prepare();
        if HAS_BULK_COPY {
            self.arrived.arrive_expect(bytes);
        }
    }

    /// Makes the stage of one of several parts ready: [`Stages::copy`] says how many bytes it expects. One thread calls this,
    /// before all others meet it at a barrier.
    #[inline(always)]
    pub fn prepare(self) {
        self.arrived.init(1);
        mbarrier::fence_init();
    }

    /// Starts to copy `parts` parts of `bytes` bytes each, a multiple of 16, one behind the other; part `p` lies at
    /// `from(p)`. All threads of the block call this; where there are bulk copies thread `p` copies part `p`, so there
    /// must be as many threads, and only thread 0 need have met [`expect`](Self::expect) if there is one part.
    ///
    /// # Safety
    /// Every part is readable and aligned to 16 bytes, and the stage has room for all.
    #[inline(always)]
    pub unsafe fn copy(self, parts: u32, bytes: u32, from: impl Fn(u32) -> *const u8) {
        // SAFETY: the caller's.
        unsafe {
            if HAS_BULK_COPY {
                self.copy_in_bulk(parts, bytes, from);
            } else {
                self.copy_by_all(parts, bytes, from);
            }
        }
    }

    /// Waits until all has come. All threads of the block call this, behind a barrier that is behind [`expect`](Self::expect).
    #[inline(always)]
    pub fn wait(self) {
        if HAS_BULK_COPY {
            self.arrived.wait(0);
        } else {
            Self::wait_for_all();
        }
    }

    /// Whether all has come, as far as a thread can see without waiting; never where there are no bulk copies. Behind a
    /// barrier that is behind [`expect`](Self::expect).
    #[inline(always)]
    pub fn arrived(self) -> bool {
        HAS_BULK_COPY && self.arrived.test(0)
    }

    /// The lane's share of tile `number`; behind [`wait`](Self::wait).
    #[inline(always)]
    pub fn tile<T: Tile>(self, number: u32, lane: u32) -> T {
        let bytes = T::BYTES as u32;
        // SAFETY: the copied tile is whole.
        unsafe { T::load(self.tiles.slice(number * bytes, bytes), lane) }
    }

    /// # Safety
    /// As [`copy`](Self::copy).
    #[inline(always)]
    unsafe fn copy_in_bulk(self, parts: u32, bytes: u32, from: impl Fn(u32) -> *const u8) {
        let part = thread::thread_idx_x();
        if part < parts {
            // SAFETY: the caller's.
            unsafe { self.send(self.tiles.address_of(part * bytes), from(part), bytes) };
        }
    }

    /// One thread's bulk copy of `bytes` bytes to shared address `to`.
    ///
    /// # Safety
    /// As [`copy`](Self::copy); `to` lies in the stage.
    #[inline(always)]
    unsafe fn send(self, to: u32, from: *const u8, bytes: u32) {
        // SAFETY: the caller's.
        unsafe { copy::bulk_policy(to, from, bytes, self.arrived, global::CachePolicy::evict_first()) };
    }

    /// # Safety
    /// As [`copy`](Self::copy).
    #[inline(always)]
    unsafe fn copy_by_all(self, parts: u32, bytes: u32, from: impl Fn(u32) -> *const u8) {
        let (mut part, chunk, step) = (0, 16 * thread::thread_idx_x(), 16 * thread::block_dim_x());
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

    #[inline(always)]
    fn wait_for_all() {
        copy::commit();
        copy::wait::<0>();
        thread::sync_threads();
    }
}

/// A stage for each of several parts, so that the first ones are multiplied while the last ones are on the way.
#[derive(Clone, Copy)]
pub struct Stages {
    /// Where the first one lies: bytes into dynamic shared memory, a multiple of 16.
    pub first: u32,
    /// Bytes of a part, a multiple of 16.
    pub bytes: u32,
}

impl Stages {
    /// Bytes of shared memory for `parts` parts of `bytes` bytes.
    #[must_use]
    pub const fn room(parts: u32, bytes: u32) -> u32 {
        parts * (Stage::HEAD + bytes)
    }

    /// The stage of part `part`.
    #[inline(always)]
    pub fn of(self, part: u32) -> Stage {
        Stage::at(self.first + Self::room(part, self.bytes), self.bytes)
    }

    /// Starts to copy the first `parts` parts, at most as many as the block has threads; part `p` lies at `from(p)`. All
    /// threads of the block call this, behind a barrier that is behind every part's [`prepare`](Stage::prepare).
    ///
    /// # Safety
    /// Every part is readable and aligned to 16 bytes, and there is room for all.
    #[inline(always)]
    pub unsafe fn copy(self, parts: u32, from: impl Fn(u32) -> *const u8) {
        let (bytes, mine) = (self.bytes, thread::thread_idx_x());
        // SAFETY: the caller's.
        unsafe {
            if HAS_BULK_COPY {
                if mine < parts {
                    let stage = self.of(mine);
                    stage.arrived.arrive_expect(bytes);
                    stage.send(stage.tiles.address_of(0), from(mine), bytes);
                }
                return;
            }
            let mut part = 0;
            while part < parts {
                self.of(part).copy_by_all(1, bytes, |_| from(part));
                part = rolled(part + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_std::emu::{Buffer, Emulator};
    use cuda_std::launch::LaunchConfig;

    /// Copies `parts` parts of `bytes` bytes from behind each other, last part first, and stores what came.
    #[kernel]
    pub unsafe fn probe(from: *const u8, out: *mut u32, parts: u32, bytes: u32, by_all: u32) {
        let stage = Stage::at(0, parts * bytes);
        let part = |p: u32| from.wrapping_add(((parts - 1 - p) * bytes) as usize);
        // SAFETY: the launch's buffers hold all parts.
        unsafe {
            if by_all != 0 {
                stage.copy_by_all(parts, bytes, part);
                Stage::wait_for_all();
            } else {
                if thread::thread_idx_x() == 0 {
                    stage.expect(parts * bytes);
                }
                thread::sync_threads();
                stage.copy_in_bulk(parts, bytes, part);
                stage.arrived.wait(0);
            }
            let mut word = thread::thread_idx_x();
            while word < parts * bytes / 4 {
                global::store(out.add(word as usize), stage.tiles.cast::<u32>().load(word));
                word += thread::block_dim_x();
            }
        }
    }

    #[test]
    fn both_ways_bring_every_part_to_its_place() {
        for (parts, bytes) in [(1, 16), (1, 2304), (3, 48), (8, 4608), (5, 3360)] {
            let words = parts * bytes / 4;
            let data: Vec<u8> = (0..words)
                .flat_map(|w: u32| w.wrapping_mul(0x9e37_79b9).to_le_bytes())
                .collect();
            let want: Vec<u32> = data
                .chunks(bytes as usize)
                .rev()
                .flat_map(|part| part.chunks(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])))
                .collect();
            for by_all in [0, 1] {
                let (from, out) = (Buffer::from_slice(&data), Buffer::<u32>::poisoned(words as usize));
                let config = LaunchConfig::new(1, 96).shared(Stage::HEAD + parts * bytes);
                let emulator = Emulator::with_seed(u64::from(parts));
                probe::launch(&emulator, config, from.ptr(), out.ptr(), parts, bytes, by_all).unwrap();
                assert_eq!(out.to_vec(), want, "{parts} parts of {bytes}, by all: {by_all}");
            }
        }
    }
}
