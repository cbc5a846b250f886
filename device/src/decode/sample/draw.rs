//! The choice among sorted candidates.

use super::random::{exp, uniform};
use super::{NO_TOKEN, SampleShape, list_words, parts};
use cuda_std::prelude::*;

/// The token that draw number `number` takes from the sorted candidates in `words`, [`NO_TOKEN`] where there are none;
/// the result is thread 0's. All threads of the block call this together.
#[inline(always)]
pub(super) fn choose(words: Shared<u64>, weights: Shared<f32>, shape: &SampleShape, number: u32) -> u32 {
    let (best, token) = parts(words.load(0));
    if words.load(0) == 0 || shape.temperature <= 0.0 {
        return if words.load(0) == 0 { NO_TOKEN } else { token };
    }
    weigh(words, weights, shape, best, 1.0);
    let mut count = 0;
    if thread::thread_idx_x() == 0 {
        count = within_min_p(
            words,
            within_top_p(weights, candidates(words, shape.top_k), shape.top_p),
            best,
            shape.ln_min_p,
        );
    }
    weigh(words, weights, shape, best, shape.temperature);
    if thread::thread_idx_x() != 0 {
        return 0;
    }
    let target = uniform(shape.seed, number as u64) * total(weights, count);
    let (mut sum, mut i) = (0.0, 0);
    while i + 1 < count {
        sum += weights.load(i);
        if sum > target {
            break;
        }
        i += 1;
    }
    parts(words.load(i)).1
}

/// The weights of all candidates at a temperature, 1 for the best and its equals; between barriers.
#[inline(always)]
fn weigh(words: Shared<u64>, weights: Shared<f32>, shape: &SampleShape, best: f32, temperature: f32) {
    thread::sync_threads();
    let mut i = thread::thread_idx_x();
    while i < list_words(shape.top_k) {
        let (logit, _) = parts(words.load(i));
        weights.store(
            i,
            if logit == best {
                1.0
            } else {
                exp(float::div(logit - best, temperature))
            },
        );
        i += thread::block_dim_x();
    }
    thread::sync_threads();
}

/// How many candidates there are: `top_k`, or fewer.
#[inline(always)]
fn candidates(words: Shared<u64>, top_k: u32) -> u32 {
    let mut count = 0;
    while count < top_k && words.load(count) != 0 {
        count += 1;
    }
    count
}

#[inline(always)]
fn total(weights: Shared<f32>, count: u32) -> f32 {
    let (mut sum, mut i) = (0.0, 0);
    while i < count {
        sum += weights.load(i);
        i += 1;
    }
    sum
}

/// How many of the first `count` candidates top-p keeps.
#[inline(always)]
fn within_top_p(weights: Shared<f32>, count: u32, top_p: f32) -> u32 {
    if top_p >= 1.0 {
        return count;
    }
    let limit = top_p * total(weights, count);
    let (mut sum, mut kept) = (0.0, 0);
    while kept < count && sum < limit {
        sum += weights.load(kept);
        kept += 1;
    }
    if kept == 0 { 1 } else { kept }
}

/// How many of the first `count` candidates min-p keeps.
#[inline(always)]
fn within_min_p(words: Shared<u64>, count: u32, best: f32, ln_min_p: f32) -> u32 {
    if ln_min_p == f32::NEG_INFINITY {
        return count;
    }
    let (limit, mut kept) = (best + ln_min_p, 0);
    while kept < count && parts(words.load(kept)).0 >= limit {
        kept += 1;
    }
    if kept == 0 { 1 } else { kept }
}
