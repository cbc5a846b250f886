//! Attention's output in parts, one of each cluster of a key head's splits: what reads it merges them.
//!
//! A part is, of every query head h, a maximum m, a sum l and a row o as [`combine`](super) adds them; the output is
//! `Σ 2^(m_p - M) o_p / Σ 2^(m_p - M) l_p` with `M = max m_p`, sums in the order of the parts. A part without work has
//! l = 0, m = -∞ and a row of zeros.

use super::combine::Partial;
use super::{Arguments, Block};
use crate::decode::columns::Columns;
use cuda_std::prelude::*;

/// Parts of an output in device memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Parts {
    /// Their rows, `[part][head][dim]` f32, 16-byte aligned.
    pub rows: DevicePtr<f32>,
    /// (max, sum) of each head, `[part][head]`.
    pub marks: DevicePtr<F32x2>,
    /// Heads of the output.
    pub heads: u32,
    /// log₂ of the dims of a head, a multiple of 4.
    pub dim_bits: u32,
}

impl Parts {
    /// Most parts that an output may have.
    pub const MOST: u32 = 4;

    /// The lane's columns of block `block` of the output, merged from `P` parts.
    ///
    /// # Safety
    /// There are `P` parts, and the output has the block.
    #[inline(always)]
    pub(crate) unsafe fn columns<const P: usize>(&self, block: u32, lane: u32) -> Columns {
        let first = 256 * block + 4 * lane;
        let all = self.heads << self.dim_bits;
        let mut marks = [[F32x2([0.0; 2]); P]; 2];
        let mut rows = [[F32x4([0.0; 4]); P]; 2];
        // All are sent for before any is needed.
        unroll!(for V in 0..2 {
            let column = first + 128 * V as u32;
            let (mark, row) = (
                self.marks.as_ptr().wrapping_add((column >> self.dim_bits) as usize),
                self.rows.as_ptr().wrapping_add(column as usize),
            );
            unroll!(for I in 0..P {
                // SAFETY: the caller's.
                unsafe {
                    marks[V][I] = global::load(mark.wrapping_add(I * self.heads as usize));
                    rows[V][I] = global::load(row.wrapping_add(I * all as usize).cast());
                }
            });
        });
        Columns::of([merged(&marks[0], &rows[0]), merged(&marks[1], &rows[1])])
    }
}

/// A vector of the output from those of its parts.
#[inline(always)]
fn merged<const P: usize>(marks: &[F32x2; P], rows: &[F32x4; P]) -> F32x4 {
    let mut max = marks[0].0[0];
    unroll!(for I in 0..P {
        max = float::max(max, marks[I].0[0]);
    });
    let (mut out, mut sum) = ([0.0; 4], 0.0);
    unroll!(for I in 0..P {
        let factor = float::exp2_approx(marks[I].0[0] - max);
        sum = float::fma(factor, marks[I].0[1], sum);
        unroll!(for J in 0..4 {
            out[J] = float::fma(factor, rows[I].0[J], out[J]);
        });
    });
    let scale = float::rcp_approx(sum);
    F32x4([out[0] * scale, out[1] * scale, out[2] * scale, out[3] * scale])
}

impl Arguments {
    /// The same for part `part` of the output, whose marks are where others have their workspace.
    #[inline(always)]
    pub(super) fn of_part<const HD: u32>(mut self, part: u32) -> Self {
        self.out = self.out.wrapping_add((part * self.shape.heads * HD) as usize);
        self.workspace.partial = self
            .workspace
            .partial
            .wrapping_add((2 * part * self.shape.heads) as usize);
        self
    }

    /// Marks query head `row` of the part.
    ///
    /// # Safety
    /// The arguments are those of a part, which has the head.
    #[inline(always)]
    pub(super) unsafe fn mark(&self, row: u32, part: Partial) {
        let marks = self.workspace.partial.cast::<F32x2>();
        // SAFETY: the caller's.
        unsafe { global::store(marks.add(row as usize), F32x2([part.max, part.sum])) }
    }

    /// Leaves the part of a cluster without work.
    ///
    /// # Safety
    /// As [`mark`](Self::mark).
    #[inline(always)]
    pub(super) unsafe fn leave_nothing<const HD: u32>(&self, block: &Block<HD>) {
        let (first, threads) = (block.kv_head * block.group, 32 * block.warps);
        let thread = block.warp * 32 + block.lane;
        if block.split > 0 {
            return;
        }
        let rows = self.out.wrapping_add((first * HD) as usize).cast::<F32x4>();
        // SAFETY: the part has the key head's query heads.
        unsafe {
            let mut head = thread;
            while head < block.group {
                self.mark(first + head, Partial::NONE);
                head += threads;
            }
            let mut at = thread;
            while at < block.group * HD / 4 {
                global::store(rows.add(at as usize), F32x4([0.0; 4]));
                at += threads;
            }
        }
    }
}
