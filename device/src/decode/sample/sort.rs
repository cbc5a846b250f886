//! Sorting 64-bit words in shared memory: bitonic networks, the largest first.

use cuda_std::prelude::*;

/// Puts the larger of two words first, or last.
#[inline(always)]
fn exchange(words: Shared<u64>, i: u32, j: u32, larger_first: bool) {
    let (a, b) = (words.load(i), words.load(j));
    if (a < b) == larger_first {
        words.store(i, b);
        words.store(j, a);
    }
}

/// Sorts `count` words (a power of two). All `threads` threads of the block call this together; ends with a barrier.
#[inline(always)]
pub(super) fn descending(words: Shared<u64>, count: u32, threads: u32) {
    let mut run = 2;
    while run <= count {
        let mut stride = run / 2;
        while stride > 0 {
            thread::sync_threads();
            let mut pair = thread::thread_idx_x();
            while pair < count / 2 {
                let i = 2 * pair - (pair & (stride - 1));
                exchange(words, i, i + stride, i & run == 0);
                pair += threads;
            }
            stride /= 2;
        }
        run *= 2;
    }
    thread::sync_threads();
}

/// Merges `lists` sorted lists of `length` words (a power of two) and leaves the largest `length` of all in the first,
/// in order. All `threads` threads of the block call this together; ends with a barrier.
///
/// Of two sorted lists, the larger of `a[i]` and `b[length - 1 - i]` are the largest of both, as a bitonic sequence, which
/// the last steps of the network put in order.
#[inline(always)]
pub(super) fn merge_lists(words: Shared<u64>, lists: u32, length: u32, threads: u32) {
    let mut left = lists;
    while left > 1 {
        let (half, pairs) = (left.div_ceil(2), left / 2);
        let mut i = thread::thread_idx_x();
        while i < pairs * length {
            let at = i & (length - 1);
            let other = words.load(half * length + i - at + (length - 1 - at));
            if other > words.load(i) {
                words.store(i, other);
            }
            i += threads;
        }
        let mut stride = length / 2;
        while stride > 0 {
            thread::sync_threads();
            let mut pair = thread::thread_idx_x();
            while pair < pairs * length / 2 {
                let i = 2 * pair - (pair & (stride - 1));
                exchange(words, i, i + stride, true);
                pair += threads;
            }
            stride /= 2;
        }
        thread::sync_threads();
        left = half;
    }
}
