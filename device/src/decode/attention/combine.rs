//! How the parts of an attention row come together: warps in shared memory, splits in a workspace.
//!
//! A part is a maximum m, a sum l = Σ 2^(s - m) and an output o = Σ 2^(s - m) v; parts add as
//! `M = max m_i`, `L = Σ 2^(m_i - M) l_i`, `O = Σ 2^(m_i - M) o_i`, and the row is `O / L`. Sums run over warps and over
//! splits in a fixed order.
//!
//! A warp takes one query head, from the block's warps to the splits, and waits for no other warp of its block: the last
//! warp of the grid to arrive with a head adds up its splits. A lane holds the factor of one part and four dims of the row.

use super::lane::{Pairs, Values};
use super::tile::{Output, Queries};
use super::{Arguments, Block};
use crate::decode::kv::KvType;
use cuda_std::prelude::*;

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
    /// Key of the new token.
    pub new_key: Shared<f32>,
    /// Value of the new token.
    pub new_value: Shared<f32>,
    /// (max, sum) of each warp and head.
    parts: Shared<F32x2>,
    /// Outputs of each warp and head, rows 4 floats longer than their dims against bank conflicts.
    outputs: Shared<f32>,
}

impl<const HD: u32, const GROUPS: usize> Room<HD, GROUPS> {
    const HEADS: u32 = 8 * GROUPS as u32;
    const ROW: u32 = HD + 4;

    /// Bytes of shared memory that a block of `warps` warps needs.
    pub(super) const fn bytes(warps: u32) -> u32 {
        Self::outputs_at(warps) + Self::output_floats(warps) * 4
    }

    const fn outputs_at(warps: u32) -> u32 {
        Queries::<HD>::bytes(GROUPS as u32) + 2 * HD * 4 + warps * Self::HEADS * 8
    }

    const fn output_floats(warps: u32) -> u32 {
        warps * Self::HEADS * Self::ROW
    }

    #[inline(always)]
    pub(super) fn new(warps: u32) -> Self {
        let queries = Queries::<HD>::bytes(GROUPS as u32);
        let parts = warps * Self::HEADS;
        Self {
            queries: Queries(shared::dynamic(0, queries / 2)),
            new_key: shared::dynamic(queries, HD),
            new_value: shared::dynamic(queries + HD * 4, HD),
            parts: shared::dynamic(queries + 2 * HD * 4, parts),
            outputs: shared::dynamic(Self::outputs_at(warps), Self::output_floats(warps)),
        }
    }

    /// Zeroes the rows of Q that no head fills.
    #[inline(always)]
    pub(super) fn clear_spare_rows(self, group: u32) {
        let mut i = group * HD + thread::thread_idx_x();
        while i < Self::HEADS * HD {
            self.queries.set(i / HD, i % HD, [0; 2]);
            i += thread::block_dim_x();
        }
    }

    /// Stores the lane's pairs of query head `head`.
    #[inline(always)]
    pub(super) fn store_query<T: KvType>(self, pairs: &Pairs<HD>, head: u32, x: &Values) {
        pairs.each(x, |dim, v| self.queries.set(head, dim, T::split(v)));
    }

    /// A head's floats for a warp alone, until outputs are stored.
    #[inline(always)]
    pub(super) fn scratch(self, warp: u32) -> Shared<f32> {
        self.outputs.slice(warp * Self::HEADS * Self::ROW, HD)
    }

    /// The new token's score for head `head`, in every lane; the warp's lanes share its dims.
    #[inline(always)]
    fn new_score<T: KvType>(self, head: u32, lane: u32) -> f32 {
        let mut sum = 0.0;
        unroll!(for I in 0..2 {
            let at = lane + 32 * I as u32;
            if 32 * (I as u32) < HD / 4 && at < HD / 4 {
                let (q, k) = (self.queries.four(head, at), self.new_key.cast::<F32x4>().load(at).0);
                let ([a, b], [c, d]) = (T::join(q[0], q[1]), T::join(q[2], q[3]));
                sum = float::fma(a, k[0], float::fma(b, k[1], sum));
                sum = float::fma(c, k[2], float::fma(d, k[3], sum));
            }
        });
        warp::sum(sum)
    }

    #[inline(always)]
    pub(super) fn store_partial(self, warp: u32, head: u32, part: Partial) {
        self.parts.store(warp * Self::HEADS + head, F32x2([part.max, part.sum]));
    }

    #[inline(always)]
    fn partial(self, warp: u32, head: u32) -> Partial {
        let F32x2([max, sum]) = self.parts.load(warp * Self::HEADS + head);
        Partial { max, sum }
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

    /// Dims `4i … 4i+3` of a warp's output for `head`.
    #[inline(always)]
    fn output(self, warp: u32, head: u32, i: u32) -> F32x4 {
        self.outputs
            .cast::<F32x4>()
            .load(((warp * Self::HEADS + head) * Self::ROW) / 4 + i)
    }
}

/// `a + factor · b`.
#[inline(always)]
fn add(a: F32x4, factor: f32, b: F32x4) -> F32x4 {
    let (a, b) = (a.0, b.0);
    F32x4([
        float::fma(factor, b[0], a[0]),
        float::fma(factor, b[1], a[1]),
        float::fma(factor, b[2], a[2]),
        float::fma(factor, b[3], a[3]),
    ])
}

#[inline(always)]
fn times(a: F32x4, factor: f32) -> F32x4 {
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
    const NONE: Self = Self {
        max: f32::NEG_INFINITY,
        sum: 0.0,
    };
}

/// Lane that holds the new token's part.
const NEW: u32 = 31;

/// Adds up the block's warps, and the new token in the block that has it, for every query head; then the splits, where
/// there are several.
///
/// # Safety
/// As the kernel; every warp has left its parts in shared memory.
#[inline(always)]
pub(super) unsafe fn heads<T: KvType, const HD: u32, const GROUPS: usize>(
    a: &Arguments,
    block: &Block<HD>,
    room: Room<HD, GROUPS>,
) {
    let mut head = block.warp;
    while head < block.group {
        let row = block.kv_head * block.group + head;
        // SAFETY: a warp of the block has the head; the row is the launch's.
        unsafe {
            let sum = warps::<T, HD, GROUPS>(a, block, room, head, row);
            if block.share.active > 1 && arrived_last(a, block, row, sum.row) {
                splits(a, block, row);
            }
        }
        head += block.warps;
    }
}

/// Adds up the block's warps for head `head` of the group, row `row` of the output; writes the result there if no other
/// split has a part of it, else to the workspace.
#[inline(always)]
unsafe fn warps<T: KvType, const HD: u32, const GROUPS: usize>(
    a: &Arguments,
    block: &Block<HD>,
    room: Room<HD, GROUPS>,
    head: u32,
    row: u32,
) -> Sum {
    let chunks = block.share.end.saturating_sub(block.share.begin);
    let busy = if chunks < block.warps { chunks } else { block.warps };
    let mut part = Partial::NONE;
    if block.lane < busy {
        part = room.partial(block.lane, head);
    }
    if block.owner() {
        let max = room.new_score::<T>(head, block.lane);
        if block.lane == NEW {
            part = Partial { max, sum: 1.0 };
        }
    }
    let sum = Sum::of([part, Partial::NONE]);
    let to = if block.share.active == 1 {
        a.out.wrapping_add((row * HD) as usize)
    } else {
        a.split_row::<HD>(row, block.split)
    };
    let scale = if block.share.active == 1 {
        float::rcp_approx(sum.row.sum)
    } else {
        1.0
    };
    let mut first = 0;
    while first < HD / 4 {
        let at = first + block.lane;
        let there = HD.is_multiple_of(128) || at < HD / 4;
        let mut out = F32x4([0.0; 4]);
        unroll!(for W in 0..8 {
            let factor = warp::shuffle(sum.factors[0], W as u32);
            if (W as u32) < busy && there {
                out = add(out, factor, room.output(W as u32, head, at));
            }
        });
        let factor = warp::shuffle(sum.factors[0], NEW);
        if there {
            if block.owner() {
                out = add(out, factor, room.new_value.cast::<F32x4>().load(at));
            }
            // SAFETY: each row and vector is written by one lane.
            unsafe { global::store(to.cast::<F32x4>().add(at as usize), times(out, scale)) };
        }
        first += 32;
    }
    sum
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
unsafe fn arrived_last<const HD: u32>(a: &Arguments, block: &Block<HD>, row: u32, part: Partial) -> bool {
    // Orders what the lanes have stored before what the first one announces.
    warp::sync();
    let mut last = 0;
    if block.lane == 0 {
        // SAFETY: the row of this split and the counter are there. Acquire and release: what the other splits wrote
        // before they counted is seen by the warp that counts last.
        unsafe {
            let to = a.split_part::<HD>(row, block.split);
            global::store(to, F32x2([part.max, part.sum]));
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
unsafe fn splits<const HD: u32>(a: &Arguments, block: &Block<HD>, row: u32) {
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
