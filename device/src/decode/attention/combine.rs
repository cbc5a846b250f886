//! How the parts of an attention row come together: warps in shared memory, splits in a workspace.
//!
//! A part is a maximum m, a sum l = Σ 2^(s - m) and an output o = Σ 2^(s - m) v; parts add as
//! `M = max m_i`, `L = Σ 2^(m_i - M) l_i`, `O = Σ 2^(m_i - M) o_i`, and the row is `O / L`. Sums run over warps and over
//! splits in a fixed order.
//!
//! A warp takes one query head, from the block's warps to the splits, and waits for no other warp of its block: the last
//! warp of the grid to arrive with a head adds up its splits. A lane holds four dims of the row. Of the warps' few parts it
//! reads all maxima and sums, which takes less time than to be told by other lanes; of the splits it holds one's factor.

use super::digits::Digits;
use super::lane::{Pairs, Values};
use super::meet::PARTS;
use super::near::Near;
use super::tile::{Output, Queries};
use super::{Arguments, Block};
use crate::decode::kv::KvType;
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// Maximum and sum of a part.
#[derive(Clone, Copy)]
pub(super) struct Partial {
    pub max: f32,
    pub sum: f32,
}

/// The splits' parts in global memory: per (query head, split) a row of the output's dims; behind all of them per row a
/// pair (max, sum).
#[derive(Clone, Copy)]
pub(super) struct Workspace {
    /// `heads · splits · (head dim + 2)` floats.
    pub partial: *mut f32,
    /// One counter a query head, zero between launches.
    pub counters: *mut u32,
}

/// A block's shared memory.
#[derive(Clone, Copy)]
pub(super) struct Room<const HD: u32, const GROUPS: usize> {
    /// The query heads.
    pub queries: Queries<HD>,
    /// Value of the new token.
    pub new_value: Shared<f32>,
    /// (max, sum) of each head and warp, and of the new token.
    parts: Shared<F32x2>,
    /// Outputs of each warp and head, rows 4 floats longer than their dims against bank conflicts.
    outputs: Shared<f32>,
}

impl<const HD: u32, const GROUPS: usize> Room<HD, GROUPS> {
    const HEADS: u32 = 8 * GROUPS as u32;
    const ROW: u32 = HD + 4;
    const PARTS: u32 = Self::HEADS * (MAX_WARPS + 1);

    /// Bytes of shared memory that a block of `warps` warps needs.
    pub(super) const fn bytes(warps: u32) -> u32 {
        Self::outputs_at() + Self::output_floats(warps) * 4
    }

    const fn outputs_at() -> u32 {
        Queries::<HD>::bytes(GROUPS as u32) + HD * 4 + Self::PARTS * 8
    }

    const fn output_floats(warps: u32) -> u32 {
        warps * Self::HEADS * Self::ROW
    }

    #[inline(always)]
    pub(super) fn new(warps: u32) -> Self {
        let queries = Queries::<HD>::bytes(GROUPS as u32);
        Self {
            queries: Queries(shared::dynamic(0, queries / 2)),
            new_value: shared::dynamic(queries, HD),
            parts: shared::dynamic(queries + HD * 4, Self::PARTS),
            outputs: shared::dynamic(Self::outputs_at(), Self::output_floats(warps)),
        }
    }

    /// Where the parts of a cluster's splits meet, behind all else.
    #[inline(always)]
    pub(super) fn near(warps: u32) -> Near<HD, GROUPS> {
        Near::at(Self::bytes(warps))
    }

    /// The query heads where they are digits.
    #[inline(always)]
    pub(super) fn digits(self) -> Digits<HD> {
        Digits::new(self.queries.0)
    }

    /// Zeroes the rows of Q that no head fills.
    #[inline(always)]
    pub(super) fn clear_spare_rows<T: KvType>(self, group: u32) {
        if T::FORMAT.scaled() {
            return self.digits().clear(group, Self::HEADS);
        }
        let mut i = group * HD + thread::thread_idx_x();
        while i < Self::HEADS * HD {
            self.queries.set(i / HD, i % HD, [0; 2]);
            i += thread::block_dim_x();
        }
    }

    /// Stores the lane's pairs of query head `head`.
    #[inline(always)]
    pub(super) fn store_query<T: KvType>(self, pairs: &Pairs<HD>, head: u32, x: &Values) {
        if T::FORMAT.scaled() {
            return self.digits().set(head, pairs, x);
        }
        pairs.each(x, |dim, v| self.queries.set(head, dim, T::split(v)));
    }

    /// A head's floats for a warp alone, until outputs are stored.
    #[inline(always)]
    pub(super) fn scratch(self, warp: u32) -> Shared<f32> {
        self.outputs.slice(warp * Self::HEADS * Self::ROW, HD)
    }

    /// Part `part` of head `head`: a warp's, or the new token's, [`NEW`].
    #[inline(always)]
    pub(super) fn store_partial(self, part: u32, head: u32, x: Partial) {
        self.parts.store(head * (MAX_WARPS + 1) + part, F32x2([x.max, x.sum]));
    }

    /// The parts of `head`; [`Partial::NONE`] where a warp has none.
    #[inline(always)]
    fn partials(self, block: &Block<HD>, head: u32) -> [Partial; 9] {
        let (busy, first) = (block.busy(), rolled(head * (MAX_WARPS + 1)));
        let part = |i: usize| {
            let F32x2([max, sum]) = self.parts.load(first + i as u32);
            Partial { max, sum }
        };
        let mut parts = [Partial::NONE; 9];
        unroll!(for W in 0..8 {
            if (W as u32) < busy {
                parts[W] = part(W);
            }
        });
        if block.owner() {
            parts[NEW as usize] = part(NEW as usize);
        }
        parts
    }

    /// Stores a lane's outputs of heads `head`, `head + 1`, dims `16m + g` and `16m + g + 8`.
    #[inline(always)]
    pub(super) fn store_output(self, warp: u32, head: u32, g: u32, out: &Output) {
        let even = (warp * Self::HEADS + head) * Self::ROW + g;
        unroll!(for M in 0..16 {
            if (M as u32) < HD / 16 {
                let (at, o) = (even + 16 * M as u32, out[M]);
                self.outputs.store(at, o[0]);
                self.outputs.store(at + Self::ROW, o[1]);
                self.outputs.store(at + 8, o[2]);
                self.outputs.store(at + 8 + Self::ROW, o[3]);
            }
        });
    }

    /// Dims `4i … 4i+3` of the outputs of `head`'s parts.
    #[inline(always)]
    fn outputs(self, block: &Block<HD>, head: u32, i: u32) -> [F32x4; 9] {
        let mut outputs = [F32x4([0.0; 4]); 9];
        let (busy, first) = (block.busy(), rolled(head * (Self::ROW / 4) + i));
        unroll!(for W in 0..8 {
            if (W as u32) < busy {
                let at = first + W as u32 * (Self::HEADS * Self::ROW / 4);
                outputs[W] = self.outputs.cast::<F32x4>().load(at);
            }
        });
        if block.owner() {
            outputs[NEW as usize] = self.new_value.cast::<F32x4>().load(i);
        }
        outputs
    }
}

/// `a + factor · b`.
#[inline(always)]
pub(super) fn add(a: F32x4, factor: f32, b: F32x4) -> F32x4 {
    let (a, b) = (a.0, b.0);
    F32x4([
        float::fma(factor, b[0], a[0]),
        float::fma(factor, b[1], a[1]),
        float::fma(factor, b[2], a[2]),
        float::fma(factor, b[3], a[3]),
    ])
}

#[inline(always)]
pub(super) fn times(a: F32x4, factor: f32) -> F32x4 {
    let a = a.0;
    F32x4([a[0] * factor, a[1] * factor, a[2] * factor, a[3] * factor])
}

/// Parts of a row, one or two a lane, on their way to a sum.
#[derive(Clone, Copy)]
struct Sum {
    /// What the outputs of the lane's parts count.
    factors: [f32; 2],
    /// Maximum and sum of the row.
    row: Partial,
}

impl Sum {
    /// Of the lane's parts; where there is none, the maximum is -∞.
    #[inline(always)]
    fn of(parts: [Partial; 2]) -> Self {
        let max = warp::max(float::max(parts[0].max, parts[1].max));
        let factors = [
            float::exp2_approx(parts[0].max - max),
            float::exp2_approx(parts[1].max - max),
        ];
        let sum = warp::sum(float::fma(factors[0], parts[0].sum, factors[1] * parts[1].sum));
        Self {
            factors,
            row: Partial { max, sum },
        }
    }
}

impl Partial {
    /// Nothing.
    pub(super) const NONE: Self = Self {
        max: f32::NEG_INFINITY,
        sum: 0.0,
    };
}

/// Warps of a block, at most.
const MAX_WARPS: u32 = 8;
/// The new token's part, behind those of the warps.
pub(super) const NEW: u32 = MAX_WARPS;

/// Adds up the block's warps, and the new token in the block that has it, for every query head.
///
/// # Safety
/// As the kernel; every warp has left its parts in shared memory.
#[inline(always)]
pub(super) unsafe fn warps<const HD: u32, const GROUPS: usize, const MEET: u32>(
    a: &Arguments,
    block: &Block<HD>,
    room: Room<HD, GROUPS>,
    near: Option<Near<HD, GROUPS>>,
) {
    let mut head = block.warp;
    while head < block.group {
        // SAFETY: a warp of the block has the head; the row is the launch's.
        unsafe { head_of_warps::<HD, GROUPS, MEET>(a, block, room, near, head, block.kv_head * block.group + head) };
        head = rolled(head + block.warps);
    }
}

/// Adds up the splits of the heads that this block is the last one to arrive with.
///
/// # Safety
/// As the kernel; the block's parts are in the workspace.
#[inline(always)]
pub(super) unsafe fn splits<const HD: u32>(a: &Arguments, block: &Block<HD>) {
    let mut head = block.warp;
    while head < block.group {
        let row = block.kv_head * block.group + head;
        // SAFETY: a warp of the block has the head; the row is the launch's.
        unsafe {
            if arrived_last(a, block, row) {
                row_of_splits(a, block, row);
            }
        }
        head = rolled(head + block.warps);
    }
}

/// Adds up the block's warps for head `head` of the group, row `row` of the output; writes the result there if no other
/// split has a part of it, else to the workspace.
///
/// Every lane does the same with the parts' maxima and sums: what lanes tell one another takes longer.
#[inline(always)]
unsafe fn head_of_warps<const HD: u32, const GROUPS: usize, const MEET: u32>(
    a: &Arguments,
    block: &Block<HD>,
    room: Room<HD, GROUPS>,
    near: Option<Near<HD, GROUPS>>,
    head: u32,
    row: u32,
) {
    let near = near.filter(|_| block.share.active > 1);
    let parts = room.partials(block, head);
    let mut outputs = [F32x4([0.0; 4]); 9];
    if HD.is_multiple_of(128) || block.lane < HD / 4 {
        outputs = room.outputs(block, head, block.lane);
    }
    let mut first = 0;
    let (factors, sum) = factors(&parts);
    let (to, scale) = if block.share.active == 1 {
        let scale = if MEET == PARTS { 1.0 } else { float::rcp_approx(sum.sum) };
        (a.out.wrapping_add((row * HD) as usize), scale)
    } else {
        (a.split_row::<HD>(row, block.split), 1.0)
    };
    while first < HD / 4 {
        let at = first + block.lane;
        if HD.is_multiple_of(128) || at < HD / 4 {
            if first > 0 {
                outputs = room.outputs(block, head, at);
            }
            let mut out = times(outputs[NEW as usize], factors[NEW as usize]);
            unroll!(for W in 0..8 {
                out = add(out, factors[W], outputs[W]);
            });
            if let Some(near) = near {
                near.send(block, head, at, out, sum);
            } else {
                // SAFETY: each row and vector is written by one lane.
                unsafe { global::store(to.cast::<F32x4>().add(at as usize), times(out, scale)) };
            }
        }
        first += 32;
    }
    if MEET == PARTS {
        if near.is_none() && block.lane == 0 {
            // SAFETY: the part has the head.
            unsafe { a.mark(row, sum) };
        }
    } else if near.is_none() && block.share.active > 1 && block.lane == 0 {
        // SAFETY: the split's place in the workspace.
        unsafe { global::store(a.split_part::<HD>(row, block.split), F32x2([sum.max, sum.sum])) };
    }
}

/// What the outputs of parts count, and maximum and sum of all.
#[inline(always)]
pub(super) fn factors(parts: &[Partial; 9]) -> ([f32; 9], Partial) {
    let larger = |i: usize, j: usize| float::max(parts[i].max, parts[j].max);
    let max = float::max(
        float::max(larger(0, 1), larger(2, 3)),
        float::max(larger(4, 5), larger(6, 7)),
    );
    let max = float::max(max, parts[8].max);
    let factors = parts.map(|part| float::exp2_approx(part.max - max));
    let mut sum = factors[8] * parts[8].sum;
    unroll!(for W in 0..8 {
        sum = float::fma(factors[W], parts[W].sum, sum);
    });
    (factors, Partial { max, sum })
}

impl Arguments {
    /// The outputs of (`row`, `split`) in the workspace.
    #[inline(always)]
    fn split_row<const HD: u32>(&self, row: u32, split: u32) -> *mut f32 {
        let index = row * thread::grid_dim_x() + split;
        self.workspace.partial.wrapping_add((index * HD) as usize)
    }

    /// The (max, sum) of (`row`, `split`) in the workspace.
    #[inline(always)]
    fn split_part<const HD: u32>(&self, row: u32, split: u32) -> *mut F32x2 {
        let rows = self.shape.heads * thread::grid_dim_x();
        let index = row * thread::grid_dim_x() + split;
        self.workspace
            .partial
            .wrapping_add((rows * HD + 2 * index) as usize)
            .cast()
    }
}

/// Leaves the split's maximum and sum of `row` in the workspace and says whether all other splits have left theirs.
#[inline(always)]
unsafe fn arrived_last<const HD: u32>(a: &Arguments, block: &Block<HD>, row: u32) -> bool {
    // Orders what the lanes have stored before what the first one announces.
    warp::sync();
    let mut last = 0;
    if block.lane == 0 {
        // SAFETY: the row of this split and the counter are there. Acquire and release: what the other splits wrote
        // before they counted is seen by the warp that counts last.
        unsafe {
            let counter = a.workspace.counters.add(row as usize);
            let before = atomic::gpu::fetch_add_acq_rel(counter, 1);
            if before + 1 == block.share.active {
                global::store(counter, 0);
                last = 1;
            }
        }
    }
    warp::shuffle(last, 0) != 0
}

/// Splits whose outputs a lane has on their way at a time: what this costs is the way to memory and back.
const TOGETHER: u32 = 16;

/// Adds up the splits of a row and writes it to the output.
#[inline(always)]
unsafe fn row_of_splits<const HD: u32>(a: &Arguments, block: &Block<HD>, row: u32) {
    let part = |split: u32| {
        if split >= block.share.active {
            return Partial::NONE;
        }
        // SAFETY: an active split has left its part.
        let F32x2([max, sum]) = unsafe { global::load_cg(a.split_part::<HD>(row, split)) };
        Partial { max, sum }
    };
    let sum = Sum::of([part(block.lane), part(block.lane + 32)]);
    let scale = float::rcp_approx(sum.row.sum);
    let mut first = 0;
    while first < HD / 4 {
        let at = first + block.lane;
        let there = HD.is_multiple_of(128) || at < HD / 4;
        let (mut out, mut split) = (F32x4([0.0; 4]), 0);
        while split < block.share.active {
            // SAFETY: an active split has left its row.
            out = unsafe { sixteen::<HD>(a, block, &sum, (row, split), at, there, out) };
            split += TOGETHER;
        }
        if there {
            // SAFETY: the output has the row.
            unsafe {
                let to = a.out.add((row * HD) as usize).cast::<F32x4>();
                global::store(to.add(at as usize), times(out, scale));
            }
        }
        first += 32;
    }
}

/// Adds vector `at` of the splits from `split` on, up to sixteen.
#[inline(always)]
unsafe fn sixteen<const HD: u32>(
    a: &Arguments,
    block: &Block<HD>,
    sum: &Sum,
    (row, split): (u32, u32),
    at: u32,
    there: bool,
    mut out: F32x4,
) -> F32x4 {
    let from = a.split_row::<HD>(row, split).cast::<F32x4>().wrapping_add(at as usize);
    let factors = if split < 32 { sum.factors[0] } else { sum.factors[1] };
    let mut parts = [F32x4([0.0; 4]); TOGETHER as usize];
    unroll!(for I in 0..16 {
        if split + (I as u32) < block.share.active && there {
            // SAFETY: the caller's.
            parts[I] = unsafe { global::load_cg(from.add(I * HD as usize / 4)) };
        }
    });
    unroll!(for I in 0..16 {
        out = add(out, warp::shuffle(factors, (split + I as u32) % 32), parts[I]);
    });
    out
}
