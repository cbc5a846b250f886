//! Rows of plain floats, which have any number of columns.
//!
//! A warp takes a row, a lane every 32nd piece of eight columns; warps stride over the rows. A piece is asked for before
//! the last one is used, the first before the wait, unless the launch before chooses the matrix.

use super::{Extra, rank_stride};
use crate::format::Format;
use core::marker::PhantomData;
use cuda_std::prelude::*;

/// `sum` plus the product of eight weights with activations 8·piece … 8·piece + 7.
#[inline(always)]
unsafe fn dot(w: [f32; 8], x: *const f32, piece: u32, sum: f32) -> f32 {
    // SAFETY: the caller's: the piece lies within x, whose start is aligned to 16 bytes.
    let (a, b) = unsafe {
        let x = x.add(8 * piece as usize).cast::<F32x4>();
        (global::load(x).0, global::load(x.add(1)).0)
    };
    let low = float::fma(
        w[0],
        a[0],
        float::fma(w[1], a[1], float::fma(w[2], a[2], float::fma(w[3], a[3], sum))),
    );
    float::fma(
        w[4],
        b[0],
        float::fma(w[5], b[1], float::fma(w[6], b[2], float::fma(w[7], b[3], low))),
    )
}

/// A lane's place: a row, and one of its pieces of eight columns.
#[derive(Clone, Copy)]
struct Place {
    row: u32,
    piece: u32,
}

/// A matrix in format `F`.
struct Rows<F: Format> {
    start: *const u8,
    rows: u32,
    columns: u32,
    format: PhantomData<F>,
}

impl<F: Format> Rows<F> {
    #[inline(always)]
    unsafe fn row(&self, row: u32) -> *const u8 {
        // SAFETY: the caller's: the row exists.
        unsafe { self.start.add(row as usize * F::row_bytes(self.columns)) }
    }

    /// The weights of a place; zeros outside the matrix.
    #[inline(always)]
    unsafe fn eight(&self, at: Place) -> [f32; 8] {
        if at.row < self.rows && at.piece < self.columns / 8 {
            // SAFETY: the piece lies within the row.
            unsafe { F::eight(self.row(at.row), at.piece) }
        } else {
            [0.0; 8]
        }
    }

    /// `sum` plus the lane's product of the columns behind the last whole piece.
    #[inline(always)]
    unsafe fn end(&self, row: u32, x: *const f32, lane: u32, sum: f32) -> f32 {
        let column = self.columns / 8 * 8 + lane;
        if F::BLOCK > 1 || column >= self.columns {
            return sum;
        }
        // SAFETY: the column lies within the row and within x.
        unsafe { float::fma(F::one(self.row(row), column), global::load(x.add(column as usize)), sum) }
    }
}

/// # Safety
/// As the kernels.
#[inline(always)]
pub(super) unsafe fn multiply<F: Format>(
    weights: *const u8,
    x: *const f32,
    y: *mut f32,
    rows: u32,
    columns: u32,
    extra: Extra,
) {
    let lane = thread::thread_idx_x() & 31;
    let (warps, pieces) = (thread::grid_dim_x() * thread::block_dim_x() / 32, columns / 8);
    let mut at = Place {
        row: (thread::block_idx_x() * thread::block_dim_x() + thread::thread_idx_x()) / 32,
        piece: lane,
    };
    if !extra.ids.is_null() {
        // The launch before chooses the matrix.
        pdl::wait();
    }
    let rank = thread::block_idx_y() as usize;
    // SAFETY: the launch's contract: every rank has an expert, an x and results.
    let (matrix, x, y, factor) = unsafe {
        let expert = extra.expert(rank);
        let matrix = Rows::<F> {
            start: weights.add(expert * extra.expert_bytes as usize),
            rows,
            columns,
            format: PhantomData,
        };
        let (x, y) = (
            x.add(rank * extra.x_stride as usize),
            y.add(rank * rank_stride(rows) as usize),
        );
        (matrix, x, y, extra.factor(expert))
    };
    // SAFETY: only what is in the matrix is read.
    let mut piece = unsafe { matrix.eight(at) };
    pdl::launch_dependents();
    pdl::wait();
    while at.row < rows {
        let (row, mut sum) = (at.row, 0f32);
        while at.row == row {
            let next = if at.piece + 32 < pieces {
                Place {
                    row,
                    piece: at.piece + 32,
                }
            } else {
                Place {
                    row: row + warps,
                    piece: lane,
                }
            };
            // SAFETY: as above. Loaded before the last one is used: a lane has two pieces on the way.
            let ahead = unsafe { matrix.eight(next) };
            if at.piece < pieces {
                // SAFETY: the piece lies within x.
                sum = unsafe { dot(piece, x, at.piece, sum) };
            }
            (piece, at) = (ahead, next);
        }
        // SAFETY: the row exists.
        sum = warp::sum(unsafe { matrix.end(row, x, lane, sum) });
        if lane == 0 {
            // SAFETY: y and the bias have `rows` elements.
            unsafe { global::store(y.add(row as usize), sum * factor + extra.term(row)) };
        }
    }
}
