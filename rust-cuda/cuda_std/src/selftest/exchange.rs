//! Places, warps and barriers.

use super::{read, write};
use crate::prelude::*;

/// Writes where each thread stands.
#[kernel]
pub unsafe fn selftest_places(_input: *const u32, output: *mut u32) {
    let place = [
        thread::thread_idx_x(),
        thread::thread_idx_y() * 16 + thread::thread_idx_z(),
        thread::block_idx_x() + thread::block_idx_y() * 16 + thread::block_idx_z() * 256,
        thread::block_dim_x() + thread::block_dim_y() * 256 + thread::block_dim_z() * 65_536,
        thread::grid_dim_x() + thread::grid_dim_y() * 16 + thread::grid_dim_z() * 256,
        warp::lane(),
        warp::index() + warp::count() * 256,
        warp::lanes_below(),
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, place) }
}

/// Shuffles of every kind, over the warp and over groups of 8 lanes.
#[kernel]
pub unsafe fn selftest_shuffles(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let [a, b, ..] = unsafe { read(input) };
    let shuffled = [
        warp::shuffle_xor(a, 5),
        warp::shuffle_down(a as i32, 3) as u32,
        warp::shuffle_up(a, 3),
        warp::shuffle(a, b % 32),
        warp::warp_shuffle_xor(warp::FULL, a, 3, 8),
        warp::warp_shuffle_down(warp::FULL, a, 3, 8),
        warp::warp_shuffle_up(warp::FULL, a, 3, 8),
        warp::warp_shuffle_idx(warp::FULL, a, b, 8),
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, shuffled) }
}

/// Votes and matches, of all lanes and of the even ones.
#[kernel]
pub unsafe fn selftest_votes(input: *const u32, output: *mut u32) {
    const EVEN: u32 = 0x5555_5555;
    // SAFETY: the shape of all self-tests.
    let [a, b, ..] = unsafe { read(input) };
    let mut votes = [
        warp::ballot(a & 1 == 1),
        u32::from(warp::all(a != 0)) + 2 * u32::from(warp::all(a & 1 == 1)),
        u32::from(warp::any(a & 1 == 1)) + 2 * u32::from(warp::any(a == b)),
        warp::warp_match_any(warp::FULL, a % 5),
        warp::active_mask() >> warp::lane() & 1,
        0,
        0,
        0,
    ];
    if warp::lane().is_multiple_of(2) {
        votes[5] = warp::warp_vote_ballot(EVEN, a & 2 == 2);
        votes[6] = u32::from(warp::warp_vote_any(EVEN, a % 64 == 0));
        votes[7] = warp::redux_max(EVEN, a);
    }
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, votes) }
}

/// Reductions over the warp.
#[kernel]
pub unsafe fn selftest_reductions(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let [a, b, ..] = unsafe { read(input) };
    let float = (b % 1000) as f32;
    let reduced = [
        warp::redux_add(warp::FULL, a),
        warp::redux_min(warp::FULL, a),
        warp::redux_max(warp::FULL, a),
        warp::redux_min_i32(warp::FULL, a as i32) as u32,
        warp::redux_max_i32(warp::FULL, a as i32) as u32,
        warp::redux_and(warp::FULL, a | 0xff) ^ warp::redux_or(warp::FULL, a & 0xff00),
        warp::redux_xor(warp::FULL, a),
        (warp::sum(float) * 1000.0 + warp::max(float)) as u32,
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, reduced) }
}

/// Block, warp and named barriers, each ordering an exchange through shared memory.
#[kernel]
pub unsafe fn selftest_barriers(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let [a, ..] = unsafe { read(input) };
    let (i, exchange) = (thread::index_in_block(), shared::dynamic::<u32>(0, 64));
    exchange.store(i, a);
    warp::sync();
    let neighbour = exchange.load(i ^ 1);
    let odd = thread::sync_threads_count(a & 1 == 1);
    let opposite = exchange.load(63 - i);
    let all = thread::sync_threads_and(a != 0);
    let any = thread::sync_threads_or(a == 0);
    // The first warp hands 32 words to the second without waiting for it.
    let handed = shared::dynamic::<u32>(256, 32);
    let received = if warp::index() == 0 {
        handed.store(i, a ^ 7);
        barrier::arrive(1, 64);
        0
    } else {
        barrier::sync(1, 64);
        handed.load(i % 32)
    };
    // SAFETY: the shape of all self-tests.
    unsafe {
        write(
            output,
            [neighbour, odd, opposite, u32::from(all), u32::from(any), received, 0, 0],
        )
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) mod expected {
    use super::super::{THREADS, Words};
    use core::array::from_fn;

    type Input = [[u32; 4]; THREADS];

    pub fn selftest_places(_: &Input) -> Words {
        from_fn(|i| {
            let i = i as u32;
            let dims = [0, 16 + 2 * 256 + 2 * 65_536, 1 + 16 + 256];
            let (x, y, z, lane) = (i % 16, i / 16 % 2, i / 32, i % 32);
            [
                x,
                y * 16 + z,
                dims[0],
                dims[1],
                dims[2],
                lane,
                i / 32 + 2 * 256,
                (1 << lane) - 1,
            ]
        })
    }

    pub fn selftest_shuffles(input: &Input) -> Words {
        from_fn(|i| {
            let (b, lane, base) = (input[i][1] as usize, i % 32, i / 32 * 32);
            let a = |lane: usize| input[base + lane][0];
            let group = lane / 8 * 8;
            [
                a(lane ^ 5),
                a(if lane + 3 < 32 { lane + 3 } else { lane }),
                a(if lane >= 3 { lane - 3 } else { lane }),
                a(b % 32),
                a(lane ^ 3),
                a(if lane + 3 < group + 8 { lane + 3 } else { lane }),
                a(if lane >= group + 3 { lane - 3 } else { lane }),
                a(group + b % 8),
            ]
        })
    }

    /// Word 0 of the lanes of thread `i`'s warp.
    fn lanes(input: &Input, i: usize) -> [u32; 32] {
        from_fn(|lane| input[i / 32 * 32 + lane][0])
    }

    fn mask(lanes: &[u32; 32], holds: impl Fn(u32) -> bool) -> u32 {
        (0..32).filter(|&l| holds(lanes[l])).fold(0, |m, l| m | 1 << l)
    }

    pub fn selftest_votes(input: &Input) -> Words {
        from_fn(|i| {
            let a = lanes(input, i);
            let even = i % 2 == 0;
            let equal = (i / 32 * 32..i / 32 * 32 + 32).any(|j| input[j][0] == input[j][1]);
            let when_even = |word: u32| if even { word } else { 0 };
            [
                mask(&a, |a| a & 1 == 1),
                u32::from(a.iter().all(|&a| a != 0)) + 2 * u32::from(a.iter().all(|&a| a & 1 == 1)),
                u32::from(a.iter().any(|&a| a & 1 == 1)) + 2 * u32::from(equal),
                mask(&a, |other| other % 5 == a[i % 32] % 5),
                1,
                when_even(mask(&a, |a| a & 2 == 2) & 0x5555_5555),
                when_even(u32::from(a.iter().step_by(2).any(|a| a % 64 == 0))),
                when_even(a.iter().step_by(2).copied().fold(0, u32::max)),
            ]
        })
    }

    pub fn selftest_reductions(input: &Input) -> Words {
        from_fn(|i| {
            let a = lanes(input, i);
            let b: [u32; 32] = from_fn(|lane| input[i / 32 * 32 + lane][1] % 1000);
            let signed = a.map(|a| a as i32);
            let (and, or) = (
                a.iter().fold(u32::MAX, |x, y| x & (y | 0xff)),
                a.iter().fold(0, |x, y| x | (y & 0xff00)),
            );
            [
                a.iter().copied().fold(0, u32::wrapping_add),
                a.iter().copied().fold(u32::MAX, u32::min),
                a.iter().copied().fold(0, u32::max),
                signed.iter().copied().fold(i32::MAX, i32::min) as u32,
                signed.iter().copied().fold(i32::MIN, i32::max) as u32,
                and ^ or,
                a.iter().fold(0, |x, y| x ^ y),
                // As the kernel does: in f32, whose rounding is part of the result.
                (b.iter().sum::<u32>() as f32 * 1000.0 + b.iter().copied().fold(0, u32::max) as f32) as u32,
            ]
        })
    }

    pub fn selftest_barriers(input: &Input) -> Words {
        from_fn(|i| {
            let odd = input.iter().filter(|words| words[0] & 1 == 1).count() as u32;
            let zero = input.iter().any(|words| words[0] == 0);
            let received = if i < 32 { 0 } else { input[i - 32][0] ^ 7 };
            [
                input[i ^ 1][0],
                odd,
                input[63 - i][0],
                u32::from(!zero),
                u32::from(zero),
                received,
                0,
                0,
            ]
        })
    }
}
