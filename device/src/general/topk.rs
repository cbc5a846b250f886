//! The experts of a token, and their weights.
//!
//! **Computes** from n router logits the `used` largest (the lowest index first among equals, NaN last), best first:
//! `ids[k]`, and `weights[k] = scale·p[k]`, p the softmax over all n, divided by the sum of the chosen (at least 2⁻¹⁴)
//! where `renormalise` says so.
//!
//! **Moves** 4 bytes an expert and rank, from L1.
//!
//! **Shape of work**: one warp. Each round looks through all logits for the largest candidate below the last one found;
//! a candidate is value and index in one number, so nothing needs to be marked as taken and any count goes. Slow on
//! purpose: the fused kernels choose in registers.
//!
//! **Launch**: [`launch`]; PDL allowed.

use crate::argmax::{candidate, key, warp_best};
use cuda_std::prelude::*;

/// Experts at most.
pub const MAX_EXPERTS: u32 = 1024;
/// What the sum of the chosen probabilities is taken for at least.
const LEAST_SUM: f32 = 1.0 / 16_384.0;

/// How experts are chosen and weighed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Choice {
    /// Number of experts.
    pub experts: u32,
    /// Experts that are chosen.
    pub used: u32,
    /// 1: the weights are divided by their sum.
    pub renormalise: u32,
    /// Multiplies the weights.
    pub scale: f32,
}

/// The largest candidate below `bound`, in every lane; all lanes call this together.
#[inline(always)]
unsafe fn best_below(logits: *const f32, experts: u32, bound: u64) -> u64 {
    let (mut best, mut i) = (0, warp::lane());
    while i < experts {
        // SAFETY: i < experts.
        let mine = candidate(key(unsafe { global::load(logits.add(i as usize)) }), i);
        best = if mine < bound && mine > best { mine } else { best };
        i += 32;
    }
    warp_best(best)
}

/// Choice of experts with their weights.
///
/// # Safety
/// The launch is one of [`launch`]: there are `experts` logits, ids and weights have `used` places.
#[kernel(pdl)]
pub unsafe fn general_topk(logits: *const f32, ids: *mut u32, weights: *mut f32, choice: Choice) {
    let lane = warp::lane();
    pdl::launch_dependents();
    pdl::wait();
    let (mut bound, mut rank, mut first, mut sum) = (u64::MAX, 0, 0f32, 0f32);
    // SAFETY: found indices are those of logits, and ranks are below `used`.
    unsafe {
        while rank < choice.used {
            bound = best_below(logits, choice.experts, bound);
            let id = !(bound as u32);
            let logit = global::load(logits.add(id as usize));
            first = if rank == 0 { logit } else { first };
            let part = float::exp(logit - first);
            sum += part;
            // A lane reads back below what it has written itself.
            if lane == rank % 32 {
                global::store(ids.add(rank as usize), id);
                global::store(weights.add(rank as usize), part);
            }
            rank += 1;
        }
        let mut all = 0f32;
        let mut i = lane;
        while i < choice.experts {
            all += float::exp(global::load(logits.add(i as usize)) - first);
            i += 32;
        }
        let all = warp::sum(all);
        let divisor = if choice.renormalise == 0 {
            1.0
        } else {
            float::max(float::div(sum, all), LEAST_SUM)
        };
        let factor = float::div(choice.scale, all * divisor);
        let mut rank = lane;
        while rank < choice.used {
            let at = weights.add(rank as usize);
            global::store(at, global::load(at) * factor);
            rank += 32;
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::{Choice, LEAST_SUM, MAX_EXPERTS, general_topk};
    use crate::shape::ShapeError;
    use cuda_std::DevicePtr;
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};

    /// The launch of a choice.
    ///
    /// # Errors
    /// More experts than [`MAX_EXPERTS`], none chosen, or more than there are.
    pub fn launch(
        logits: DevicePtr<f32>,
        ids: DevicePtr<u32>,
        weights: DevicePtr<f32>,
        choice: Choice,
    ) -> Result<PreparedLaunch, ShapeError> {
        let Choice { experts, used, .. } = choice;
        if used == 0 || used > experts || experts > MAX_EXPERTS {
            let rule = format!("{used} of {experts} experts; it takes 1 to all of up to {MAX_EXPERTS}");
            return Err(ShapeError::new("general_topk", rule));
        }
        let config = LaunchConfig::new(1, 32).pdl(true);
        Ok(general_topk::prepare(config, logits, ids, weights, choice))
    }

    /// The chosen experts and their weights in f64.
    pub fn reference(logits: &[f32], choice: Choice) -> Vec<(u32, f64)> {
        let mut order: Vec<u32> = (0..choice.experts).collect();
        let logit = |i: u32| f64::from(logits[i as usize]);
        // Adding zero makes the two zeros equal.
        order.sort_by(|&a, &b| (logit(b) + 0.0).total_cmp(&(logit(a) + 0.0)));
        let all: f64 = (0..choice.experts).map(|i| (logit(i) - logit(order[0])).exp()).sum();
        order.truncate(choice.used as usize);
        let p: Vec<f64> = order
            .iter()
            .map(|&i| (logit(i) - logit(order[0])).exp() / all)
            .collect();
        let divisor = match choice.renormalise {
            0 => 1.0,
            _ => p.iter().sum::<f64>().max(f64::from(LEAST_SUM)),
        };
        let weigh = |(i, p): (&u32, f64)| (*i, f64::from(choice.scale) * p / divisor);
        order.iter().zip(p).map(weigh).collect()
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::{launch, reference};
