//! Shared and global memory, and atomics.

use super::{read, write};
use crate::prelude::*;

/// Shared memory: words, vectors, bytes, slices and static arrays.
#[kernel]
pub unsafe fn selftest_shared(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let words = unsafe { read(input) };
    let i = thread::index_in_block();
    let vectors = shared::dynamic::<U32x4>(0, 64);
    let fixed = shared::static_shared!(fixed: [u32; 64]);
    vectors.store(i, U32x4(words));
    fixed.store(i, words[0] ^ words[1]);
    thread::sync_threads();
    let other = 63 - i;
    let single = vectors.cast::<u32>().load(4 * other + 1);
    let pair = vectors.cast::<u32>().load_as::<U32x2>(4 * other + 2).0;
    let long = vectors.cast::<u64>().load(2 * other);
    let bytes = vectors.cast::<u8>().slice(16 * other, 16);
    let small = u32::from(bytes.load(3)) | u32::from(bytes.cast::<u16>().load(7)) << 8;
    let of_fixed = fixed.load(other);
    thread::sync_threads();
    vectors.cast::<u32>().store_as(4 * i + 2, U32x2([i, of_fixed]));
    vectors.cast::<u8>().store(16 * i, i as u8);
    thread::sync_threads();
    let mixed = vectors.load(other).0;
    let results = [
        single,
        pair[0] ^ pair[1],
        long as u32,
        (long >> 32) as u32,
        small,
        of_fixed,
        mixed[0] ^ mixed[3],
        mixed[2],
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results) }
}

/// Atomics in shared memory.
#[kernel]
pub unsafe fn selftest_shared_atomics(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let [a, b, ..] = unsafe { read(input) };
    let i = thread::index_in_block();
    let (counts, signed) = (shared::dynamic::<u32>(0, 8), shared::dynamic::<i32>(64, 1));
    let floats = shared::dynamic::<f32>(128, 1);
    if i < 8 {
        counts.store(i, if i == 2 { u32::MAX } else { 0 });
    }
    if i == 0 {
        signed.store(0, i32::MIN);
        floats.store(0, 0.0);
    }
    thread::sync_threads();
    counts.fetch_add(0, a % 100);
    counts.fetch_max(1, a);
    counts.fetch_min(2, a);
    counts.fetch_or(3, 1 << (a % 32));
    signed.fetch_max(0, b as i32);
    floats.fetch_add(0, (a % 100) as f32);
    // The one that finds 0 leaves its number; all others find that.
    counts.compare_exchange(4, 0, i + 1);
    let seen = counts.exchange(5, 7);
    thread::sync_threads();
    let results = [
        counts.load(0),
        counts.load(1),
        counts.load(2),
        counts.load(3),
        signed.load(0) as u32,
        floats.load(0) as u32,
        u32::from((1..=64).contains(&counts.load(4))),
        u32::from(seen == 0 || seen == 7),
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results) }
}

/// Loads with every cache hint.
#[kernel]
pub unsafe fn selftest_loads(input: *const u32, output: *mut u32) {
    let at = input.wrapping_add(thread::index_in_block() as usize * 4);
    global::prefetch_l2(at);
    // SAFETY: the shape of all self-tests: four words lie there, aligned to 16 bytes.
    unsafe {
        let all = global::load_stream(at.cast::<U32x4>()).0;
        let two = global::load_stream(at.cast::<U32x2>()).0;
        let kept = global::load_policy(at.cast::<U32x4>(), global::CachePolicy::evict_first()).0;
        let results = [
            global::load(at),
            global::load_nc(at.add(1)),
            global::load_cg(at.add(2)),
            global::load_ca(at.add(3)) ^ global::load_volatile(at),
            global::load_keep(at.add(1)),
            all[0] ^ all[1] ^ all[2] ^ all[3],
            two[0].wrapping_sub(two[1]),
            kept[3] ^ u32::from(global::load_nc(at.cast::<u8>().add(5))),
        ];
        write(output, results);
    }
}

/// Stores with every cache hint.
#[kernel]
pub unsafe fn selftest_stores(input: *const u32, output: *mut u32) {
    let to = output.wrapping_add(thread::index_in_block() as usize * 8);
    // SAFETY: the shape of all self-tests: eight words lie there, aligned to 32 bytes.
    unsafe {
        let [a, b, c, d] = read(input);
        global::store(to.cast(), U32x4([d, c, b, a]));
        global::store_cg(to.add(4), a);
        global::store_stream(to.add(5), b);
        global::store_volatile(to.add(6), c);
        global::store_policy(to.add(7), d, global::CachePolicy::evict_last());
    }
}

/// Atomics in global memory: the output's first words, begun by one thread, counted by all.
#[kernel]
pub unsafe fn selftest_atomics(input: *const u32, output: *mut u32) {
    use atomic::{cta, gpu, sys};
    // SAFETY: the shape of all self-tests; the words used lie in the output.
    unsafe {
        let [a, b, ..] = read(input);
        let i = thread::index_in_block();
        let begin = [0, 0, 0, i32::MIN as u32, u32::MAX, 0, 0, 0];
        write(output, if i == 0 { begin } else { [0; 8] });
        gpu::fence();
        thread::sync_threads();
        gpu::fetch_add(output, a % 100);
        gpu::reduce_add(output.add(1), b % 100);
        gpu::fetch_add_acq_rel(output.add(1), 1);
        gpu::reduce_add_release(output.add(1), 1);
        gpu::reduce_add(output.add(2).cast::<f32>(), (a % 8) as f32);
        gpu::fetch_max(output.add(3).cast::<i32>(), b as i32);
        cta::fetch_min(output.add(4), a);
        cta::fetch_or(output.add(5), 1 << (a % 32));
        gpu::fetch_add(output.add(6).cast::<u64>(), u64::from(a));
        let mine = output.add(i as usize * 8 + 8);
        if i < 63 {
            gpu::store_release(mine, b);
            gpu::compare_exchange(mine.add(1), 0, a);
            gpu::compare_exchange(mine.add(1), !a, 1);
            let old = sys::exchange(mine.add(2), gpu::load_acquire(mine).wrapping_add(1));
            gpu::store_relaxed(mine.add(3), old + cta::fetch_and(mine.add(4), 0));
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) mod expected {
    use super::super::{THREADS, Words};
    use core::array::from_fn;

    type Input = [[u32; 4]; THREADS];

    pub fn selftest_shared(input: &Input) -> Words {
        from_fn(|i| {
            let (theirs, other) = (input[63 - i], 63 - i);
            let bytes: Vec<u8> = theirs.iter().flat_map(|word| word.to_le_bytes()).collect();
            let small = u32::from(bytes[3]) | u32::from(u16::from_le_bytes([bytes[14], bytes[15]])) << 8;
            // What the other thread saw in its opposite, which is this one.
            let of_fixed = input[i][0] ^ input[i][1];
            let first = theirs[0] & !0xff | other as u32;
            let mine = theirs[0] ^ theirs[1];
            [
                theirs[1],
                theirs[2] ^ theirs[3],
                theirs[0],
                theirs[1],
                small,
                mine,
                first ^ of_fixed,
                other as u32,
            ]
        })
    }

    fn column(input: &Input, j: usize) -> impl Iterator<Item = u32> {
        input.iter().map(move |words| words[j])
    }

    pub fn selftest_shared_atomics(input: &Input) -> Words {
        let hundreds: u32 = column(input, 0).map(|a| a % 100).sum();
        let word = [
            hundreds,
            column(input, 0).fold(0, u32::max),
            column(input, 0).fold(u32::MAX, u32::min),
            column(input, 0).fold(0, |bits, a| bits | 1 << (a % 32)),
            column(input, 1).map(|b| b as i32).fold(i32::MIN, i32::max) as u32,
            hundreds,
            1,
            1,
        ];
        [word; THREADS]
    }

    pub fn selftest_loads(input: &Input) -> Words {
        input.map(|[a, b, c, d]| {
            [
                a,
                b,
                c,
                d ^ a,
                b,
                a ^ b ^ c ^ d,
                a.wrapping_sub(b),
                d ^ u32::from(b.to_le_bytes()[1]),
            ]
        })
    }

    pub fn selftest_stores(input: &Input) -> Words {
        input.map(|[a, b, c, d]| [d, c, b, a, a, b, c, d])
    }

    pub fn selftest_atomics(input: &Input) -> Words {
        let total: u64 = column(input, 0).map(u64::from).sum();
        let first = [
            column(input, 0).map(|a| a % 100).sum(),
            column(input, 1).map(|b| b % 100 + 2).sum(),
            (column(input, 0).map(|a| a % 8).sum::<u32>() as f32).to_bits(),
            column(input, 1).map(|b| b as i32).fold(i32::MIN, i32::max) as u32,
            column(input, 0).fold(u32::MAX, u32::min),
            column(input, 0).fold(0, |bits, a| bits | 1 << (a % 32)),
            total as u32,
            (total >> 32) as u32,
        ];
        from_fn(|i| match i {
            0 => first,
            _ => {
                let [a, b, ..] = input[i - 1];
                [b, a, b.wrapping_add(1), 0, 0, 0, 0, 0]
            }
        })
    }
}
