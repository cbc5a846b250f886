//! How the parts of an attention row come together: warps in shared memory, splits in a workspace.
//!
//! A part is a maximum m, a sum l = Σ 2^(s - m) and an output o = Σ 2^(s - m) v; parts add as
//! `M = max m_i`, `L = Σ 2^(m_i - M) l_i`, `O = Σ 2^(m_i - M) o_i`, and the row is `O / L`. Sums run over warps and over
//! splits in their order.

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

/// The splits' parts in global memory: per (key head, split, head of the group) the output's dims; behind all of them
/// per row a pair (max, sum).
#[derive(Clone, Copy)]
pub(super) struct Workspace {
    /// `kv heads · splits · group · (head dim + 2)` floats.
    pub partial: *mut f32,
    /// One counter a key head, zero between launches.
    pub counters: *mut u32,
}

/// A block's shared memory.
#[derive(Clone, Copy)]
pub(super) struct Room<const HD: u32, const GROUPS: usize> {
    /// The query heads.
    pub queries: Queries<HD>,
    /// Score of the new token for each head.
    pub new_scores: Shared<f32>,
    /// Value of the new token.
    pub new_value: Shared<f32>,
    /// (max, sum) of each warp and head.
    parts: Shared<F32x2>,
    /// Outputs of each warp and head, rows 4 floats longer than their dims against bank conflicts.
    outputs: Shared<f32>,
    /// Whether this block is the last of its key head.
    last: Shared<u32>,
}

impl<const HD: u32, const GROUPS: usize> Room<HD, GROUPS> {
    const HEADS: u32 = 8 * GROUPS as u32;
    const ROW: u32 = HD + 4;

    /// Bytes of shared memory that a block of `warps` warps needs.
    pub(super) const fn bytes(warps: u32) -> u32 {
        Self::outputs_at(warps) + Self::output_floats(warps) * 4
    }

    const fn outputs_at(warps: u32) -> u32 {
        Queries::<HD>::bytes(GROUPS as u32) + 16 + 64 + HD * 4 + warps * Self::HEADS * 8
    }

    const fn output_floats(warps: u32) -> u32 {
        warps * Self::HEADS * Self::ROW
    }

    #[inline(always)]
    pub(super) fn new(warps: u32) -> Self {
        let last = Queries::<HD>::bytes(GROUPS as u32);
        let parts = warps * Self::HEADS;
        Self {
            queries: Queries(shared::dynamic(0, last / 2)),
            last: shared::dynamic(last, 1),
            new_scores: shared::dynamic(last + 16, 16),
            new_value: shared::dynamic(last + 80, HD),
            parts: shared::dynamic(last + 80 + HD * 4, parts),
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

/// Adds up the warps of the block, and the new token in the block that has it; writes the result to `out` where the
/// key head has only this block, else to the workspace.
///
/// # Safety
/// As the kernel; every warp has left its parts in shared memory.
#[inline(always)]
pub(super) unsafe fn warps<const HD: u32, const GROUPS: usize>(
    a: &Arguments,
    block: &Block<HD>,
    room: Room<HD, GROUPS>,
) {
    let vectors = HD / 4;
    let mut i = thread::thread_idx_x();
    while i < block.group * vectors {
        let (head, at) = (i / vectors, i % vectors);
        let (part, sum) = block_row(block, room, head, at);
        // SAFETY: each row and vector of the group is written by one thread.
        unsafe {
            if block.share.active == 1 {
                let row = a.out.add(((block.kv_head * block.group + head) * HD) as usize);
                global::store(row.cast::<F32x4>().add(at as usize), times(sum, float::rcp(part.sum)));
            } else {
                a.store_split::<HD>(block, head, at, part, sum);
            }
        }
        i += thread::block_dim_x();
    }
}

/// One vector of one head, summed over the block.
#[inline(always)]
fn block_row<const HD: u32, const GROUPS: usize>(
    block: &Block<HD>,
    room: Room<HD, GROUPS>,
    head: u32,
    at: u32,
) -> (Partial, F32x4) {
    let chunks = block.share.end.saturating_sub(block.share.begin);
    let busy = if chunks < block.warps { chunks } else { block.warps };
    let mut max = if block.owner() {
        room.new_scores.load(head)
    } else {
        f32::NEG_INFINITY
    };
    let mut warp = 0;
    while warp < busy {
        max = max.max(room.partial(warp, head).max);
        warp += 1;
    }
    let (mut part, mut sum) = (Partial { max, sum: 0.0 }, F32x4([0.0; 4]));
    warp = 0;
    while warp < busy {
        let of = room.partial(warp, head);
        let factor = float::exp2_approx(of.max - max);
        part.sum = float::fma(factor, of.sum, part.sum);
        sum = add(sum, factor, room.output(warp, head, at));
        warp += 1;
    }
    if block.owner() {
        let factor = float::exp2_approx(room.new_scores.load(head) - max);
        part.sum += factor;
        sum = add(sum, factor, room.new_value.cast::<F32x4>().load(at));
    }
    (part, sum)
}

impl Arguments {
    /// Index of the row of (`split`, `head`) of the block's key head in the workspace.
    #[inline(always)]
    fn split_row<const HD: u32>(&self, block: &Block<HD>, split: u32, head: u32) -> u32 {
        (block.kv_head * thread::grid_dim_x() + split) * block.group + head
    }

    /// The (max, sum) of a row of the workspace.
    #[inline(always)]
    fn split_part<const HD: u32>(&self, row: u32) -> *mut F32x2 {
        let rows = self.shape.heads * thread::grid_dim_x();
        self.workspace
            .partial
            .wrapping_add((rows * HD + 2 * row) as usize)
            .cast()
    }

    #[inline(always)]
    unsafe fn store_split<const HD: u32>(&self, block: &Block<HD>, head: u32, at: u32, part: Partial, sum: F32x4) {
        let row = self.split_row(block, block.split, head);
        // SAFETY: the workspace has a row for each split and head.
        unsafe {
            let to = self.workspace.partial.add((row * HD) as usize).cast::<F32x4>();
            global::store(to.add(at as usize), sum);
            if at == 0 {
                global::store(self.split_part::<HD>(row), F32x2([part.max, part.sum]));
            }
        }
    }
}

/// The last block of a key head to come here adds up the splits and writes the output.
///
/// # Safety
/// As the kernel; the block has written its rows of the workspace.
#[inline(always)]
pub(super) unsafe fn splits<const HD: u32, const GROUPS: usize>(
    a: &Arguments,
    block: &Block<HD>,
    room: Room<HD, GROUPS>,
) {
    thread::sync_threads();
    if thread::thread_idx_x() == 0 {
        // SAFETY: the counter of this key head. Acquire and release: what the other blocks wrote before they counted
        // is seen by the block that counts last.
        unsafe {
            let counter = a.workspace.counters.add(block.kv_head as usize);
            let before = atomic::gpu::fetch_add_acq_rel(counter, 1);
            let last = before + 1 == block.share.active;
            if last {
                global::store(counter, 0);
            }
            room.last.store(0, u32::from(last));
        }
    }
    thread::sync_threads();
    if room.last.load(0) == 0 {
        return;
    }
    let mut i = thread::thread_idx_x();
    while i < block.group * (HD / 4) {
        // SAFETY: every active split's rows are there; each vector of the output is written by one thread.
        unsafe { one_vector(a, block, i) };
        i += thread::block_dim_x();
    }
}

/// Splits whose parts a thread has on their way at a time: what this costs is the way to memory and back.
const TOGETHER: u32 = 16;

/// A vector of four dims of a head, being summed over splits.
#[derive(Clone, Copy)]
struct Vector {
    head: u32,
    at: u32,
    part: Partial,
    sum: F32x4,
}

/// What a thread has loaded of a vector's splits: outputs, and (max, sum).
type Parts = ([F32x4; TOGETHER as usize], [F32x2; TOGETHER as usize]);

impl Vector {
    #[inline(always)]
    fn new<const HD: u32>(i: u32) -> Self {
        let (head, at) = (i / (HD / 4), i % (HD / 4));
        Self {
            head,
            at,
            part: Partial {
                max: f32::NEG_INFINITY,
                sum: 0.0,
            },
            sum: F32x4([0.0; 4]),
        }
    }

    /// Loads the parts of the splits from `first` on.
    #[inline(always)]
    unsafe fn load<const HD: u32>(&self, a: &Arguments, block: &Block<HD>, first: u32) -> Parts {
        let mut parts = ([F32x4([0.0; 4]); 16], [F32x2([f32::NEG_INFINITY, 0.0]); 16]);
        unroll!(for I in 0..16 {
            let split = first + I as u32;
            if split < block.share.active {
                let row = a.split_row(block, split, self.head);
                // SAFETY: an active split has written its row.
                unsafe {
                    let from = a.workspace.partial.add((row * HD) as usize).cast::<F32x4>();
                    parts.0[I] = global::load_cg(from.add(self.at as usize));
                    parts.1[I] = global::load_cg(a.split_part::<HD>(row));
                }
            }
        });
        parts
    }

    /// Adds loaded parts, in the order of the splits.
    #[inline(always)]
    fn add(&mut self, (outputs, parts): &Parts) {
        let mut max = self.part.max;
        unroll!(for I in 0..16 {
            max = float::max(max, parts[I].0[0]);
        });
        let before = float::exp2_approx(self.part.max - max);
        self.part = Partial {
            max,
            sum: self.part.sum * before,
        };
        self.sum = times(self.sum, before);
        unroll!(for I in 0..16 {
            let factor = float::exp2_approx(parts[I].0[0] - max);
            self.part.sum = float::fma(factor, parts[I].0[1], self.part.sum);
            self.sum = add(self.sum, factor, outputs[I]);
        });
    }
}

/// Sums vector `i` of the key head's heads over the splits and stores it.
#[inline(always)]
unsafe fn one_vector<const HD: u32>(a: &Arguments, block: &Block<HD>, i: u32) {
    let mut vector = Vector::new::<HD>(i);
    let mut first = 0;
    // SAFETY: the caller's.
    unsafe {
        while first < block.share.active {
            let parts = vector.load(a, block, first);
            vector.add(&parts);
            first += TOGETHER;
        }
        let row = a.out.add(((block.kv_head * block.group + vector.head) * HD) as usize);
        global::store(
            row.cast::<F32x4>().add(vector.at as usize),
            times(vector.sum, float::rcp(vector.part.sum)),
        );
    }
}
