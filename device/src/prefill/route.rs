//! Which experts a prompt's tokens use, and which tokens an expert has.
//!
//! [`choose`]: `experts[i][rank]` and `weights[i][rank]` of token i, by the same [search](crate::decode::topk) as in a
//! decode step. [`group`]: the pairs (token, rank) sorted by expert, in the order of tokens within one:
//! `starts[e] … starts[e + 1]` are expert e's places, `tokens[place]` the token, `places[i · used + rank]` the inverse.
//!
//! **Shape of the work**: to choose, a warp a token. To group, a block an expert: it counts the pairs of lower experts
//! (its start) and ranks its own by a scan, each thread over neighbouring pairs. Nothing is atomic, and no block needs
//! another.
//!
//! **Launches**: [`choose`], [`group`].

use crate::decode::topk;
use cuda_std::prelude::*;

/// Threads of a block that groups.
const THREADS: u32 = 256;
/// Warps of a block that chooses.
const WARPS: u32 = 4;

/// The experts of a prompt's tokens and their weights.
///
/// Prepare it with [`choose`].
///
/// # Safety
/// The arguments of a launch that [`choose`] prepared.
#[kernel(pdl)]
pub unsafe fn prefill_choose(
    logits: *const f32,
    experts: *mut u32,
    weights: *mut f32,
    of: u32,
    used: u32,
    tokens: u32,
) {
    let lane = warp::lane();
    let token = thread::block_idx_x() * WARPS + thread::thread_idx_x() / 32;
    pdl::wait();
    if token >= tokens {
        return;
    }
    let mut rank = 0;
    while rank < used {
        // SAFETY: the token has logits, and a place for each rank.
        unsafe {
            let keys = |i| topk::keys(logits.add((token * of) as usize), of, i);
            let chosen = topk::chosen::<true>(keys, of, rank, used, lane);
            if lane == 0 {
                let at = (token * used + rank) as usize;
                global::store(experts.add(at), chosen.expert);
                global::store(weights.add(at), chosen.weight);
            }
        }
        rank += 1;
    }
}

/// What a thread's pairs are to an expert.
#[derive(Clone, Copy)]
struct Counts {
    /// Pairs of the expert.
    own: u32,
    /// Pairs of lower experts.
    lower: u32,
}

impl Counts {
    /// The block's pairs of lower experts, and its own before this thread's.
    #[inline(always)]
    fn meet(self) -> (u32, u32) {
        let parts: Shared<U32x2> = shared::dynamic(0, THREADS / 32);
        let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
        let mut scan = self.own;
        unroll!(for I in 0..5 {
            let below = warp::shuffle_up(scan, 1 << I);
            if lane >= 1 << I {
                scan += below;
            }
        });
        let lower = warp::redux_add(warp::FULL, self.lower);
        if lane == 31 {
            parts.store(warp, U32x2([scan, lower]));
        }
        thread::sync_threads();
        let (mut all_lower, mut before) = (0, scan - self.own);
        unroll!(for W in 0..8 {
            let U32x2([own, lower]) = parts.load(W as u32);
            all_lower += lower;
            if (W as u32) < warp {
                before += own;
            }
        });
        (all_lower, before)
    }
}

/// The pairs of token and rank, sorted by expert.
///
/// Prepare it with [`group`].
///
/// # Safety
/// The arguments of a launch that [`group`] prepared.
#[kernel(pdl)]
pub unsafe fn prefill_group(
    experts: *const u32,
    tokens: *mut u32,
    places: *mut u32,
    starts: *mut u32,
    pairs: u32,
    used: u32,
) {
    let (id, expert) = (thread::thread_idx_x(), thread::block_idx_x());
    let each = pairs.div_ceil(THREADS);
    let first = if id * each < pairs { id * each } else { pairs };
    let end = if first + each < pairs { first + each } else { pairs };
    pdl::wait();
    let mut counts = Counts { own: 0, lower: 0 };
    let mut pair = first;
    // SAFETY: all pairs are below `pairs`, and all places.
    unsafe {
        while pair < end {
            let of = global::load(experts.add(pair as usize));
            counts.own += u32::from(of == expert);
            counts.lower += u32::from(of < expert);
            pair += 1;
        }
        let (start, before) = counts.meet();
        let mut place = start + before;
        let mut pair = first;
        while pair < end {
            if global::load(experts.add(pair as usize)) == expert {
                let token = pair.checked_div(used).unwrap_or(0);
                global::store(tokens.add(place as usize), token);
                global::store(places.add(pair as usize), place);
                place += 1;
            }
            pair += 1;
        }
        if id == 0 {
            global::store(starts.add(expert as usize), start);
            if expert + 1 == thread::grid_dim_x() {
                global::store(starts.add(expert as usize + 1), pairs);
            }
        }
    }
}

/// The launch that chooses `used` of `of` experts for each of `tokens` tokens.
///
/// # Errors
/// Experts that are no multiple of 4 or more than 256, more used than there are, no tokens.
#[cfg(not(target_arch = "nvptx64"))]
pub fn choose(
    logits: DevicePtr<f32>,
    experts: DevicePtr<u32>,
    weights: DevicePtr<f32>,
    of: u32,
    used: u32,
    tokens: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    topk::check("prefill_choose", of, used)?;
    let tokens = crate::shape::count("prefill_choose", "tokens", tokens as usize)?;
    let config = cuda_std::launch::LaunchConfig::new(tokens.div_ceil(WARPS), 32 * WARPS);
    Ok(prefill_choose::prepare(
        config, logits, experts, weights, of, used, tokens,
    ))
}

/// Where the pairs of token and rank go.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct Grouping {
    /// The expert of each pair.
    pub experts: DevicePtr<u32>,
    /// The token of each place.
    pub tokens: DevicePtr<u32>,
    /// The place of each pair.
    pub places: DevicePtr<u32>,
    /// The first place of each expert, and behind the last one's.
    pub starts: DevicePtr<u32>,
}

/// The launch that sorts the pairs of `tokens` tokens with `used` experts each by `of` experts.
///
/// # Errors
/// As [`choose`].
#[cfg(not(target_arch = "nvptx64"))]
pub fn group(
    g: &Grouping,
    of: u32,
    used: u32,
    tokens: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    topk::check("prefill_group", of, used)?;
    let pairs = crate::shape::count("prefill_group", "pairs", (tokens * used) as usize)?;
    let config = cuda_std::launch::LaunchConfig::new(of, THREADS).shared(THREADS / 32 * 8);
    Ok(prefill_group::prepare(
        config, g.experts, g.tokens, g.places, g.starts, pairs, used,
    ))
}
