//! The chosen experts of a token, found by a warp in registers.
//!
//! A lane holds four or eight neighbouring experts' logits as keys that order as unsigned integers. Each round takes
//! the warp's largest key with one `redux.sync.max`, the first lane that has it with one ballot, and removes it: exact,
//! the lowest index first among equals, no barrier and no memory. Every block that needs the experts repeats it, which
//! costs less than passing them on.
//!
//! The weight of a chosen expert is its softmax over all experts, divided by the sum of those of the chosen: the same as
//! its softmax over the chosen alone, which is what is computed. (llama.cpp keeps that sum above 2⁻¹⁴; the k likeliest
//! of n experts have at least k/n of it, so that makes no difference.)

use cuda_std::prelude::*;

/// Experts at most.
pub const MAX_EXPERTS: u32 = 256;

/// A logit as a key: unsigned order is the floats' order. NaN is below everything, 0 stands for no expert.
#[inline(always)]
fn key(logit: f32) -> u32 {
    let bits = logit.to_bits();
    if logit.is_nan() {
        1
    } else if bits >> 31 != 0 {
        !bits
    } else {
        bits | 0x8000_0000
    }
}

/// The logit of a key.
#[inline(always)]
fn logit(key: u32) -> f32 {
    f32::from_bits(if key >> 31 != 0 { key & 0x7fff_ffff } else { !key })
}

/// An expert of a given rank.
#[derive(Clone, Copy)]
pub(super) struct Chosen {
    /// Which expert.
    pub expert: u32,
    /// Its weight; only if asked for.
    pub weight: f32,
}

/// The expert of rank `rank` among `experts` (a multiple of 4, at most [`MAX_EXPERTS`]), and with `weigh` its weight
/// among the `used` first. All lanes of the warp call this together.
///
/// # Safety
/// `logits` points to `experts` floats, 16-byte aligned.
#[inline(always)]
pub(super) unsafe fn chosen<const WEIGH: bool>(
    logits: *const f32,
    experts: u32,
    rank: u32,
    used: u32,
    lane: u32,
) -> Chosen {
    // SAFETY: the caller's.
    unsafe {
        if experts <= 128 {
            let keys = [load(logits, experts, lane)];
            pick::<1, WEIGH>(keys, rank, used, lane)
        } else {
            let keys = [load(logits, experts, 2 * lane), load(logits, experts, 2 * lane + 1)];
            pick::<2, WEIGH>(keys, rank, used, lane)
        }
    }
}

/// The keys of experts `4i … 4i+3`.
#[inline(always)]
unsafe fn load(logits: *const f32, experts: u32, i: u32) -> [u32; 4] {
    if 4 * i >= experts {
        return [0; 4];
    }
    // SAFETY: the experts exist.
    let v = unsafe { global::load(logits.cast::<F32x4>().add(i as usize)).0 };
    [key(v[0]), key(v[1]), key(v[2]), key(v[3])]
}

#[inline(always)]
fn pick<const N: usize, const WEIGH: bool>(mut keys: [[u32; 4]; N], rank: u32, used: u32, lane: u32) -> Chosen {
    let rounds = if WEIGH { used } else { rank + 1 };
    let (mut found, mut first, mut mine, mut sum) = (0, 0.0, 0.0, 0.0);
    let mut round = 0;
    while round < rounds {
        let (here, index) = best(&keys);
        let top = warp::redux_max(warp::FULL, here);
        let owner = warp::ballot(here == top).trailing_zeros();
        if lane == owner {
            remove(&mut keys, index);
        }
        if WEIGH {
            let value = logit(top);
            first = if round == 0 { value } else { first };
            let weight = float::exp2_approx((value - first) * core::f32::consts::LOG2_E);
            sum += weight;
            mine = if round == rank { weight } else { mine };
        }
        if round == rank {
            found = warp::shuffle(4 * N as u32 * lane + index, owner);
        }
        round += 1;
    }
    Chosen {
        expert: found,
        weight: if WEIGH { float::div(mine, sum) } else { 0.0 },
    }
}

/// The largest of a lane's keys and its index, the lowest among equals.
#[inline(always)]
fn best<const N: usize>(keys: &[[u32; 4]; N]) -> (u32, u32) {
    let (mut top, mut index) = (0, 0);
    unroll!(for I in 0..8 {
        if I < 4 * N && keys[I / 4 % N][I % 4] > top {
            (top, index) = (keys[I / 4 % N][I % 4], I as u32);
        }
    });
    (top, index)
}

#[inline(always)]
fn remove<const N: usize>(keys: &mut [[u32; 4]; N], index: u32) {
    unroll!(for I in 0..8 {
        if I < 4 * N && index == I as u32 {
            keys[I / 4 % N][I % 4] = 0;
        }
    });
}

/// Whether the kernels take this many experts.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn check(kernel: &'static str, experts: u32, used: u32) -> Result<(), crate::shape::ShapeError> {
    if used == 0 || used > experts || experts > MAX_EXPERTS || !experts.is_multiple_of(4) {
        let rule = format!("{used} of {experts} experts; it takes 1 to all of a multiple of 4 up to {MAX_EXPERTS}");
        return Err(crate::shape::ShapeError::new(kernel, rule));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_floats_do() {
        let floats = [
            f32::NEG_INFINITY,
            -1e30,
            -1.0,
            -1e-40,
            -0.0,
            0.0,
            1e-40,
            1.0,
            1e30,
            f32::INFINITY,
        ];
        for pair in floats.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
        }
        for x in floats {
            assert_eq!(logit(key(x)).to_bits(), x.to_bits());
        }
        assert!(key(f32::NAN) < key(f32::NEG_INFINITY) && key(-f32::NAN) > 0);
    }
}
