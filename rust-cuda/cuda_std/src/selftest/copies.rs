//! Asynchronous copies and dependent launches.

use super::{read, write};
use crate::{clock, prelude::*};

/// `cp.async` of 4, 8 and 16 bytes in two groups.
#[kernel]
pub unsafe fn selftest_async_copies(input: *const u32, output: *mut u32) {
    let i = thread::index_in_block();
    let from = input.wrapping_add(4 * i as usize).cast::<u8>();
    let (all, some) = (shared::dynamic::<u32>(0, 256), shared::dynamic::<u32>(1024, 256));
    // SAFETY: the shape of all self-tests: 16 bytes lie there.
    unsafe {
        copy::async_16(all.address_of(4 * i), from);
        copy::commit();
        copy::async_8(some.address_of(4 * i), from.add(8));
        copy::async_4(some.address_of(4 * i + 2), from.add(4));
        copy::commit();
    }
    copy::wait::<1>();
    let own = all.load_as::<U32x4>(4 * i).0;
    thread::sync_threads();
    let theirs = all.load_as::<U32x4>(4 * (63 - i)).0;
    copy::wait::<0>();
    thread::sync_threads();
    let later = [0, 1, 2].map(|word| some.load(4 * (i ^ 5) + word));
    let results = [
        own[0],
        own[3],
        theirs[0],
        theirs[1] ^ theirs[2],
        theirs[3],
        later[0],
        later[1],
        later[2],
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results) }
}

/// A ring of one slot: a producer thread fills it by bulk copies, the other warp empties it, twice.
#[kernel]
pub unsafe fn selftest_bulk_copies(input: *const u32, output: *mut u32) {
    let (i, lane) = (thread::index_in_block(), warp::lane());
    let slot = shared::dynamic::<u32>(0, 128);
    let barriers = shared::dynamic::<u64>(1024, 2);
    let (full, empty) = (mbarrier::Barrier::at(barriers, 0), mbarrier::Barrier::at(barriers, 1));
    if i == 0 {
        full.init(1);
        empty.init(32);
        mbarrier::fence_init();
    }
    thread::sync_threads();
    let mut results = [0; 8];
    if warp::index() == 0 {
        if lane == 0 {
            // SAFETY: the shape of all self-tests: 1024 bytes lie there.
            unsafe { global::prefetch_l2_range(input, 1024) };
            produce(input, slot, full, empty);
        }
    } else {
        let mut round = 0;
        while round < 2 {
            full.wait(round);
            results[round as usize] = slot.load(lane);
            results[2 + round as usize] = slot.load(127 - lane);
            empty.arrive();
            round += 1;
        }
    }
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results) }
}

/// Copies both halves of the input into the slot, the second when the first has been read.
#[inline(always)]
fn produce(input: *const u32, slot: Shared<u32>, full: mbarrier::Barrier, empty: mbarrier::Barrier) {
    let mut round = 0;
    while round < 2 {
        if round > 0 {
            empty.wait(round - 1);
        }
        full.arrive_expect(512);
        let from = input.wrapping_add(128 * round as usize).cast::<u8>();
        // SAFETY: the shape of all self-tests: 512 bytes lie there.
        unsafe {
            copy::bulk(slot.address(), from, 256, full);
            let policy = global::CachePolicy::evict_first();
            copy::bulk_policy(slot.address_of(64), from.wrapping_add(256), 256, full, policy);
        }
        round += 1;
    }
}

/// Waits for the launch before, and reads the clocks.
#[kernel]
pub unsafe fn selftest_dependency(input: *const u32, output: *mut u32) {
    let (cycles, nanoseconds) = (clock::cycles(), clock::nanoseconds());
    pdl::launch_dependents();
    pdl::wait();
    // SAFETY: the shape of all self-tests.
    let [a, b, c, d] = unsafe { read(input) };
    let forward = u32::from(clock::cycles() >= cycles) + 2 * u32::from(clock::nanoseconds() >= nanoseconds);
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, [a, b, c, d, forward, 0, 0, 0]) }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) mod expected {
    use super::super::{THREADS, Words};
    use core::array::from_fn;

    type Input = [[u32; 4]; THREADS];

    pub fn selftest_async_copies(input: &Input) -> Words {
        from_fn(|i| {
            let (own, theirs, later) = (input[i], input[63 - i], input[i ^ 5]);
            [
                own[0],
                own[3],
                theirs[0],
                theirs[1] ^ theirs[2],
                theirs[3],
                later[2],
                later[3],
                later[1],
            ]
        })
    }

    pub fn selftest_bulk_copies(input: &Input) -> Words {
        let words = input.as_flattened();
        from_fn(|i| match i {
            0..32 => [0; 8],
            _ => {
                let lane = i - 32;
                [
                    words[lane],
                    words[128 + lane],
                    words[127 - lane],
                    words[255 - lane],
                    0,
                    0,
                    0,
                    0,
                ]
            }
        })
    }

    pub fn selftest_dependency(input: &Input) -> Words {
        input.map(|[a, b, c, d]| [a, b, c, d, 3, 0, 0, 0])
    }
}
