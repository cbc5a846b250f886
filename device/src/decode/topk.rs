//! The chosen experts of a token, found by a warp in registers.
//!
//! A lane holds four or eight neighbouring experts' logits as keys that order as unsigned integers. Each round takes out
//! the warp's largest key, found by one `redux.sync.max`: exact, the lowest index first among equals, no barrier and no
//! memory. Every block of `gateup` repeats it for its own rank; `down` is told ([`choices`](super::choices)).
//!
//! The weight of a chosen expert is its softmax over all experts, divided by the sum of those of the chosen: the same as
//! its softmax over the chosen alone, which is what is computed. (llama.cpp keeps that sum above 2⁻¹⁴; the k likeliest
//! of n experts have at least k/n of it, so that makes no difference.)

use cuda_std::prelude::*;
use cuda_std::unroll::stepped;

/// Experts at most.
pub const MAX_EXPERTS: u32 = 256;

/// A logit as a key: unsigned order is the floats' order. NaN is below everything, 0 stands for no expert.
#[inline(always)]
pub(super) fn key(logit: f32) -> u32 {
    // Arithmetic, not branches: four keys a lane are on every expert launch's way.
    let bits = logit.to_bits();
    let sign = (bits as i32 >> 31) as u32;
    if logit.is_nan() { 1 } else { bits ^ (sign | 0x8000_0000) }
}

/// The logit of a key.
#[inline(always)]
pub(super) fn logit(key: u32) -> f32 {
    f32::from_bits(if key >> 31 != 0 { key & 0x7fff_ffff } else { !key })
}

/// An expert of a given rank.
#[derive(Clone, Copy)]
pub(crate) struct Chosen {
    /// Which expert.
    pub expert: u32,
    /// Its weight; only if asked for.
    pub weight: f32,
}

/// The expert of rank `rank` among `experts` (a multiple of 4, at most [`MAX_EXPERTS`]), and with `weigh` its weight
/// among the `used` first. All lanes of the warp call this together.
///
/// `keys(i)` are those of experts `4i … 4i + 3`.
#[inline(always)]
pub(crate) fn chosen<const WEIGH: bool>(
    keys: impl Fn(u32) -> [u32; 4],
    experts: u32,
    rank: u32,
    used: u32,
    lane: u32,
) -> Chosen {
    if experts <= 128 {
        find::<1, WEIGH>([keys(lane)], rank, used)
    } else {
        find::<2, WEIGH>([keys(2 * lane), keys(2 * lane + 1)], rank, used)
    }
}

/// The short way where no two of the first keys are equal, else the long one.
#[inline(always)]
fn find<const N: usize, const WEIGH: bool>(keys: [[u32; 4]; N], rank: u32, used: u32) -> Chosen {
    if !WEIGH && let Some(expert) = distinct(&keys, rank) {
        return Chosen { expert, weight: 0.0 };
    }
    pick::<N, WEIGH>(keys, rank, used)
}

/// The expert of rank `rank` if the keys up to it are all different: each lane brings its own in order, and a round takes the
/// first of one lane.
#[inline(always)]
fn distinct<const N: usize>(keys: &[[u32; 4]; N], rank: u32) -> Option<u32> {
    let mut row = sorted(keys);
    let (mut key, mut equal, mut round) = (0, false, 0);
    while round <= rank {
        key = warp::redux_max(warp::FULL, row[0]);
        let mine = row[0] == key;
        unroll!(for I in 0..8 {
            if I < 4 * N && mine {
                row[I] = if I + 1 < 4 * N { row[(I + 1) % 8] } else { 0 };
            }
        });
        let takers = warp::ballot(mine);
        equal |= takers & (takers - 1) != 0 || warp::ballot(row[0] == key) != 0;
        round = stepped(round + 1);
    }
    if equal {
        return None;
    }
    let slot = slot_of(keys, key);
    let owner = warp::ballot(slot < 4 * N as u32).trailing_zeros();
    Some(4 * N as u32 * owner + warp::shuffle(slot, owner))
}

/// A lane's keys, the largest first.
#[inline(always)]
fn sorted<const N: usize>(keys: &[[u32; 4]; N]) -> [u32; 8] {
    let mut row = [0; 8];
    unroll!(for I in 0..8 {
        if I < 4 * N {
            row[I] = keys[I / 4 % N][I % 4];
        }
    });
    // Batcher's network of eight; where there are four the other half stays zero.
    const PAIRS: [(usize, usize); 19] = [
        (0, 1),
        (2, 3),
        (0, 2),
        (1, 3),
        (1, 2),
        (4, 5),
        (6, 7),
        (4, 6),
        (5, 7),
        (5, 6),
        (0, 4),
        (1, 5),
        (2, 6),
        (3, 7),
        (2, 4),
        (3, 5),
        (1, 2),
        (3, 4),
        (5, 6),
    ];
    unroll!(for I in 0..19 {
        const PAIR: (usize, usize) = PAIRS[I % 19];
        if PAIR.1 < 4 * N && (N > 1 || I < 5) {
            let (a, b) = (row[PAIR.0], row[PAIR.1]);
            (row[PAIR.0], row[PAIR.1]) = (a.max(b), a.min(b));
        }
    });
    row
}

/// The keys of experts `4i … 4i + 3` among `experts`, by their logits.
///
/// # Safety
/// `logits` points to `experts` floats, 16-byte aligned.
#[inline(always)]
pub(crate) unsafe fn keys(logits: *const f32, experts: u32, i: u32) -> [u32; 4] {
    if 4 * i >= experts {
        return [0; 4];
    }
    // SAFETY: the experts exist.
    let v = unsafe { global::load(logits.cast::<F32x4>().add(i as usize)).0 };
    [key(v[0]), key(v[1]), key(v[2]), key(v[3])]
}

/// Each round takes the largest key out with all its equals, so that the next one need not wait to learn whose it was; how
/// many there were, and so which ranks they have, is counted beside it. Rounds behind the last rank change nothing.
#[inline(always)]
fn pick<const N: usize, const WEIGH: bool>(mut keys: [[u32; 4]; N], rank: u32, used: u32) -> Chosen {
    let rounds = if WEIGH { used } else { rank + 1 };
    let (mut found, mut first, mut sum, mut taken) = (
        Group {
            key: 0,
            before: 0,
            slots: 0,
        },
        0.0,
        0.0,
        0,
    );
    let mut round = 0;
    while round < rounds {
        let key = warp::redux_max(warp::FULL, largest(&keys));
        let slots = take(&mut keys, key);
        let equals = warp::redux_add(warp::FULL, slots.count_ones());
        if WEIGH {
            first = if round == 0 { logit(key) } else { first };
            let counted = equals.min(used.saturating_sub(taken));
            // A key of no expert has no weight, not even times zero.
            sum = if counted > 0 {
                float::fma(counted as f32, weight(key, first, 1.0), sum)
            } else {
                sum
            };
        }
        if taken <= rank {
            found = Group {
                key,
                before: taken,
                slots,
            };
        }
        taken += equals;
        round = stepped(round + 1);
    }
    let expert = found.expert::<N>(rank);
    Chosen {
        expert,
        weight: if WEIGH {
            float::div(weight(found.key, first, 1.0), sum)
        } else {
            0.0
        },
    }
}

/// Each of the `used` first of `experts` (a multiple of 4, at most [`MAX_EXPERTS`]), in the lane of its rank, with the
/// weights of `scale` times the logits; `used` is at most 32, `keys(i)` are those of experts `4i … 4i + 3`. All lanes of the
/// warp call this together.
#[inline(always)]
pub(crate) fn by_lane(keys: impl Fn(u32) -> [u32; 4], experts: u32, used: u32, scale: f32, lane: u32) -> Chosen {
    if experts <= 128 {
        rank_all([keys(lane)], used, scale, lane)
    } else {
        rank_all([keys(2 * lane), keys(2 * lane + 1)], used, scale, lane)
    }
}

/// Each round takes out the first expert that has the largest key.
#[inline(always)]
fn rank_all<const N: usize>(mut keys: [[u32; 4]; N], used: u32, scale: f32, lane: u32) -> Chosen {
    let (mut mine, mut expert, mut first) = (0, 0, 0);
    let mut round = 0;
    while round < used {
        let key = warp::redux_max(warp::FULL, largest(&keys));
        let slot = slot_of(&keys, key);
        let owner = warp::ballot(slot < 4 * N as u32).trailing_zeros();
        let winner = 4 * N as u32 * owner + warp::shuffle(slot, owner);
        if lane == owner {
            remove(&mut keys, slot);
        }
        (mine, expert) = if lane == round { (key, winner) } else { (mine, expert) };
        first = if round == 0 { key } else { first };
        round = stepped(round + 1);
    }
    let part = if lane < used {
        weight(mine, logit(first), scale)
    } else {
        0.0
    };
    let mut sum = part;
    unroll!(for I in 0..5 {
        sum += warp::shuffle_xor(sum, 16 >> I);
    });
    Chosen {
        expert,
        weight: part * float::rcp_approx(sum),
    }
}

/// The first of a lane's slots that has `key`; past the last where none has it.
#[inline(always)]
fn slot_of<const N: usize>(keys: &[[u32; 4]; N], key: u32) -> u32 {
    let mut slot = 4 * N as u32;
    unroll!(for I in 0..8 {
        const BACK: usize = 7 - I;
        if BACK < 4 * N && keys[BACK / 4 % N][BACK % 4] == key {
            slot = BACK as u32;
        }
    });
    slot
}

/// Takes a slot's key out.
#[inline(always)]
fn remove<const N: usize>(keys: &mut [[u32; 4]; N], slot: u32) {
    unroll!(for I in 0..8 {
        if I < 4 * N && slot == I as u32 {
            keys[I / 4 % N][I % 4] = 0;
        }
    });
}

/// The softmax weight of `scale` times a key's logit before it is divided by the sum.
#[inline(always)]
fn weight(key: u32, first: f32, scale: f32) -> f32 {
    float::exp2_approx((logit(key) - first) * (scale * core::f32::consts::LOG2_E))
}

/// Equal keys that were taken in one round.
#[derive(Clone, Copy)]
struct Group {
    key: u32,
    /// Ranks before theirs.
    before: u32,
    /// Which of this lane's slots have it, a bit each.
    slots: u32,
}

impl Group {
    /// The expert of rank `rank`, one of the group's: they are ranked by lane, then by slot.
    #[inline(always)]
    fn expert<const N: usize>(&self, rank: u32) -> u32 {
        let mut owners = warp::ballot(self.slots != 0);
        let mut skip = rank - self.before;
        // Usually one owner with one slot, and no round of this loop.
        loop {
            let owner = owners.trailing_zeros();
            let slots = warp::shuffle(self.slots, owner);
            let here = slots.count_ones();
            if skip < here || owners & (owners - 1) == 0 {
                return 4 * N as u32 * owner + nth_bit(slots, skip);
            }
            skip -= here;
            owners &= owners - 1;
        }
    }
}

/// The position of bit number `n` among the set bits.
#[inline(always)]
fn nth_bit(mut bits: u32, mut n: u32) -> u32 {
    while n > 0 {
        bits &= bits - 1;
        n -= 1;
    }
    bits.trailing_zeros()
}

/// The largest of a lane's keys.
#[inline(always)]
fn largest<const N: usize>(keys: &[[u32; 4]; N]) -> u32 {
    let mut top = 0;
    unroll!(for I in 0..2 {
        if I < N {
            let [a, b, c, d] = keys[I % N];
            top = top.max(a.max(b).max(c.max(d)));
        }
    });
    top
}

/// Takes `key` out of a lane's keys and returns the slots that had it.
#[inline(always)]
fn take<const N: usize>(keys: &mut [[u32; 4]; N], key: u32) -> u32 {
    let mut slots = 0;
    unroll!(for I in 0..8 {
        if I < 4 * N && keys[I / 4 % N][I % 4] == key {
            keys[I / 4 % N][I % 4] = 0;
            slots |= 1 << I;
        }
    });
    slots
}

/// Whether the kernels take this many experts.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn check(kernel: &'static str, experts: u32, used: u32) -> Result<(), crate::shape::ShapeError> {
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

    /// A network that sorts all rows of zeros and ones sorts every row.
    #[test]
    fn a_lanes_keys_come_in_order() {
        for row in 0..256u32 {
            let bit = |i: u32| row >> i & 1;
            let four = |first: u32| [bit(first), bit(first + 1), bit(first + 2), bit(first + 3)];
            let ones = row.count_ones() as usize;
            let want: Vec<u32> = (0..8).map(|i| u32::from(i < ones)).collect();
            assert_eq!(sorted(&[four(0), four(4)]).to_vec(), want, "{row:08b}");
            let (of_four, ones) = (sorted(&[four(0)]), (row & 15).count_ones() as usize);
            assert!((0..8).all(|i| of_four[i] == u32::from(i < ones)), "{row:04b}");
        }
    }
}
