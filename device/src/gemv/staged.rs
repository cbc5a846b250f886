//! Rows of blocks, multiplied by tensor cores from shared memory.
//!
//! A weight decoded to a float costs more instructions than its bytes leave time for: here it enters a product of bytes,
//! mostly as the file has it ([`fragment`](crate::format::fragment)), and what it meets are the digits of an activation
//! ([`digits`](super::digits)). Their sums are exact; only those of blocks are floats'. A block of threads takes sixteen
//! rows at a time ([`ring`](super::ring)), a warp 256 columns of them. Rows of more columns than all warps have come in
//! several rounds, whose sums meet in y.

use super::digits::{Activations, float_of};
use super::ring::{self, COLUMNS, Matrix, PIECE, ROWS, Rows, WARPS, round_columns};
use super::{Extra, rank_stride};
use crate::format::cursor::Cursor;
use crate::format::fragment::{self, Fragments, Term};
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// Threads of a block.
pub(super) const THREADS: u32 = 32 * WARPS;
/// Floats of the warps' sums of a step.
const SUMS: u32 = WARPS * ROWS;
/// Bytes before the activations: the sums, and those of the step before.
const HEAD: u32 = 2 * SUMS * 4;

/// Bytes of shared memory of a launch for rows of `columns` columns, in blocks of `block` columns and `bytes` bytes.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const fn shared_bytes(columns: u32, block: u32, bytes: u32) -> u32 {
    HEAD + Activations::bytes(round_columns(columns)) + ring::bytes(columns, block, bytes)
}

/// The lane's sums of two rows: of two digits each.
type Totals = [[f32; 2]; 2];

/// What a lane has of a block in two rows.
type Parts<F> = [<F as Fragments>::Part; 2];

/// The sums of a step of block `block`.
#[inline(always)]
fn sums_of<F: Fragments, const STEP: usize>(parts: &Parts<F>, x: Activations, block: u32) -> [i32; 4] {
    let step = block * F::STEPS as u32 + STEP as u32;
    let mut sums = x.start::<F>(step, warp::lane() % 4);
    let mut activations = x.fragment(step * F::OWN as u32);
    unroll!(for LINK in 0..2 {
        if LINK < F::LINKS {
            if LINK == 1 && !F::TWICE {
                activations = x.fragment(step * F::OWN as u32 + 1);
            }
            let rows = [F::bytes::<STEP, LINK>(&parts[0]), F::bytes::<STEP, LINK>(&parts[1])];
            sums = fragment::multiply::<F>(rows, activations, sums);
        }
    });
    sums
}

/// Adds sums to the totals, each times its row's factor.
#[inline(always)]
fn add<F: Fragments>(sums: [i32; 4], factors: [f32; 2], totals: &mut Totals) {
    unroll!(for I in 0..4 {
        totals[I / 2][I % 2] = float::fma(factors[I / 2], float_of::<F>(sums[I]), totals[I / 2][I % 2]);
    });
}

/// Adds a block whose steps have floats for factors to the totals.
#[inline(always)]
fn add_steps<F: Fragments>(parts: &Parts<F>, x: Activations, block: u32, totals: &mut Totals) {
    unroll!(for STEP in 0..2 {
        if STEP < F::STEPS {
            let scales = [F::scale::<STEP>(&parts[0]), F::scale::<STEP>(&parts[1])];
            add::<F>(
                sums_of::<F, STEP>(parts, x, block),
                [scales[0][0], scales[1][0]],
                totals,
            );
            if F::TERM == Term::Minimum {
                let own = x.sum(block * F::STEPS as u32 + STEP as u32, warp::lane() % 4);
                unroll!(for R in 0..2 {
                    totals[R][0] = float::fma(scales[R][1], own, totals[R][0]);
                });
            }
        }
    });
}

/// Adds a block whose steps have whole factors to the totals.
#[inline(always)]
fn add_whole<F: Fragments>(parts: &Parts<F>, x: Activations, block: u32, totals: &mut Totals) {
    let mut all = [0i32; 4];
    unroll!(for STEP in 0..8 {
        if STEP < F::STEPS {
            let sums = sums_of::<F, STEP>(parts, x, block);
            let factors = [F::factor::<STEP>(&parts[0]), F::factor::<STEP>(&parts[1])];
            unroll!(for I in 0..4 {
                all[I] = sums[I].wrapping_mul(factors[I / 2]).wrapping_add(all[I]);
            });
        }
    });
    let scales = [F::scale::<0>(&parts[0]), F::scale::<0>(&parts[1])];
    add::<F>(all, [scales[0][0], scales[1][0]], totals);
    if F::TERM == Term::Minima {
        let (activations, unit) = x.sums::<F>(block);
        let rows = [[F::minima(&parts[0]), 0], [F::minima(&parts[1]), 0]];
        let sums = fragment::multiply::<F>(rows, activations, [0; 4]);
        add::<F>(sums, [unit * scales[0][1], unit * scales[1][1]], totals);
    }
}

/// Adds block `index` of the warp's piece of two rows to the totals.
#[inline(always)]
fn add_block<F: Fragments>(rows: [Cursor; 2], x: Activations, index: u32, totals: &mut Totals) {
    let (t, block) = (warp::lane() % 4, warp::index() * (PIECE / F::BLOCK) + index);
    let part = |row: Cursor| F::load(row.past(index * F::BYTES), t);
    let parts = [part(rows[0]), part(rows[1])];
    if F::WHOLE {
        add_whole::<F>(&parts, x, block, totals);
    } else {
        add_steps::<F>(&parts, x, block, totals);
    }
}

/// Adds the first `blocks` blocks, of which a piece has several.
#[inline(always)]
fn add_small<F: Fragments>(rows: [Cursor; 2], x: Activations, blocks: u32, totals: &mut Totals) {
    let (all, mut index) = (PIECE / F::BLOCK, 0);
    if F::TOGETHER == all && blocks == all {
        unroll!(for I in 0..8 {
            add_block::<F>(rows, x, I as u32, totals);
        });
        return;
    }
    while F::TOGETHER < all && index + F::TOGETHER <= blocks {
        unroll!(for I in 0..4 {
            if (I as u32) < F::TOGETHER {
                add_block::<F>(rows, x, index + I as u32, totals);
            }
        });
        index = rolled(index + F::TOGETHER);
    }
    while index < blocks {
        add_block::<F>(rows, x, index, totals);
        index = rolled(index + 1);
    }
}

/// The warp's sums of the two rows that the lane has a part of, whose first block there is at the cursors.
#[inline(always)]
fn two_rows<F: Fragments>(rows: [Cursor; 2], x: Activations, blocks: u32) -> [f32; 2] {
    let mut totals = [[0f32; 2]; 2];
    if F::BLOCK == PIECE {
        if blocks > 0 {
            add_block::<F>(rows, x, 0, &mut totals);
        }
    } else {
        add_small::<F>(rows, x, blocks, &mut totals);
    }
    let factor = if blocks > 0 {
        x.factor(warp::index(), warp::lane() % 4)
    } else {
        0.0
    };
    totals.map(|[low, high]| {
        let mut sum = float::fma(256.0, high, low) * factor;
        unroll!(for I in 0..2 {
            sum += warp::shuffle_xor(sum, 1 << I);
        });
        sum
    })
}

/// Where results go.
struct Results {
    matrix: Matrix,
    /// Of the first rank.
    y: *mut f32,
    extra: Extra,
    sums: Shared<f32>,
}

impl Results {
    /// Leaves the warp's sums of step number `number`.
    #[inline(always)]
    fn leave(&self, sums: [f32; 2], number: u32) {
        let (row, t) = (warp::lane() / 4, warp::lane() % 4);
        let at = (number % 2 * WARPS + warp::index()) * ROWS + row;
        if t < 2 {
            self.sums.store(at + 8 * t, if t == 0 { sums[0] } else { sums[1] });
        }
    }

    /// Adds what the warps left in step number `number`, which begins at row `row`, and what y has of rounds before. All
    /// warps call this, behind a barrier; each does it in its turn.
    #[inline(always)]
    unsafe fn store(&self, number: u32, row: u32, round: u32) {
        let own = warp::lane();
        if warp::index() != number % WARPS || own >= ROWS || row + own >= self.matrix.rows {
            return;
        }
        let mut sum = 0.0;
        unroll!(for W in 0..8 {
            sum += self.sums.load((number % 2 * WARPS + W as u32) * ROWS + own);
        });
        let rank = thread::block_idx_y() as usize;
        // SAFETY: y and the bias have a value for each row, and every rank has an expert; a row's rounds before were this
        // thread's. What all rows share is read anew: it would hold registers meanwhile.
        unsafe {
            let y = self
                .y
                .add(rank * rank_stride(self.matrix.rows) as usize + (row + own) as usize);
            if round > 0 {
                sum += global::load(y.cast_const());
            }
            if (round + 1) * COLUMNS >= self.matrix.columns {
                sum = sum * self.extra.factor(self.extra.expert(rank)) + self.extra.term(row + own);
            }
            global::store(y, sum);
        }
    }

    /// Multiplies a round's columns of all rows of the block, of which the first step has been sent for.
    #[inline(always)]
    unsafe fn round<F: Fragments>(&self, mut ring: Rows<F>, x: Activations, round: u32) {
        let (mut row, stride) = (ROWS * thread::block_idx_x(), ROWS * thread::grid_dim_x());
        let columns = (self.matrix.columns - round * COLUMNS).saturating_sub(PIECE * warp::index());
        let blocks = columns.min(PIECE) / F::BLOCK;
        let before = PIECE / F::BLOCK * F::BYTES * warp::index();
        let starts = [0, 8].map(|more| ring.start(warp::lane() / 4 + more, before));
        let mut number = 0;
        while row < self.matrix.rows {
            Rows::<F>::wait();
            if row + stride < self.matrix.rows {
                // SAFETY: all have read what lay there, two steps ago.
                unsafe { ring.fetch(row + stride, stride, number + 1) };
            }
            if number > 0 {
                // SAFETY: the launch's contract.
                unsafe { self.store(number - 1, row - stride, round) };
            }
            let rows = starts.map(|start| ring.cursor(start, number));
            self.leave(two_rows::<F>(rows, x, blocks), number);
            (row, number) = (row + stride, number + 1);
        }
        thread::sync_threads();
        // SAFETY: as above; a block of threads has rows.
        unsafe { self.store(number - 1, row - stride, round) };
    }
}

/// # Safety
/// As the kernels.
#[inline(always)]
pub(super) unsafe fn multiply<F: Fragments>(
    weights: *const u8,
    x: *const f32,
    y: *mut f32,
    rows: u32,
    columns: u32,
    extra: Extra,
) {
    let rank = thread::block_idx_y() as usize;
    if !extra.ids.is_null() {
        // The launch before chooses the matrix.
        pdl::wait();
    }
    // SAFETY: the launch's contract: every rank has an expert, an x and results.
    let (results, x) = unsafe {
        let expert = extra.expert(rank);
        let results = Results {
            matrix: Matrix {
                start: weights.add(expert * extra.expert_bytes as usize),
                rows,
                columns,
            },
            y,
            extra,
            sums: shared::dynamic(0, 2 * SUMS),
        };
        (results, x.add(rank * extra.x_stride as usize))
    };
    let activations = Activations::at(HEAD, round_columns(columns));
    let offset = HEAD + Activations::bytes(round_columns(columns));
    let mut round = 0;
    while round * COLUMNS < columns {
        let (row, stride) = (ROWS * thread::block_idx_x(), ROWS * thread::grid_dim_x());
        let mut ring = Rows::<F>::new(results.matrix, offset, round, row);
        // SAFETY: all have read what lay there: they met behind the last step.
        unsafe { ring.fetch(row, stride, 0) };
        if round == 0 {
            pdl::launch_dependents();
            pdl::wait();
        }
        // SAFETY: x has a float for each column; the launch before this one has written it.
        unsafe {
            activations.fill::<F>(
                x.add((round * COLUMNS) as usize),
                round_columns(columns - round * COLUMNS),
            )
        };
        // SAFETY: the launch's contract.
        unsafe { results.round(ring, activations, round) };
        round += 1;
    }
}
