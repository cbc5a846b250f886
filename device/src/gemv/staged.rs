//! Rows of blocks, multiplied by tensor cores from shared memory.
//!
//! A weight decoded to a float costs more instructions than its bytes leave time for: here it enters a product of bytes,
//! mostly as the file has it ([`fragment`](crate::format::fragment)), and what it meets are the digits of an activation
//! ([`digits`](super::digits)). Their sums are exact; only those of blocks are floats'. A block of threads takes sixteen
//! rows at a time ([`ring`](super::ring)), a warp 256 columns of them. Rows of more columns than all warps have come in
//! several rounds, whose sums meet in y.

use super::digits::Activations;
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
    let mut activations = [0; 2];
    unroll!(for LINK in 0..4 {
        if LINK < F::LINKS {
            if !F::TWICE {
                activations = x.fragment(step * F::OWN as u32 + LINK as u32);
            } else if LINK % 2 != 1 {
                activations = x.fragment(step * F::OWN as u32 + LINK as u32 / 2);
            }
            let rows = [F::bytes::<STEP, LINK>(&parts[0]), F::bytes::<STEP, LINK>(&parts[1])];
            sums = fragment::multiply::<F>(rows, activations, sums);
        }
    });
    sums
}

/// Adds sums of blocks to the totals, each times its row's factor.
#[inline(always)]
fn add(sums: [i32; 4], factors: [f32; 2], totals: &mut Totals) {
    unroll!(for I in 0..4 {
        totals[I / 2][I % 2] = float::fma(factors[I / 2], float::from_i32(sums[I]), totals[I / 2][I % 2]);
    });
}

/// Adds sums of steps to the totals' first digits, each times its row's factor. They are joined as whole numbers: 32 products
/// of a byte and two digits stay below 2³¹, and half as many floats are made and added.
#[inline(always)]
fn add_joined(sums: [i32; 4], factors: [f32; 2], totals: &mut Totals) {
    unroll!(for R in 0..2 {
        let sum = 256 * sums[2 * R + 1] + sums[2 * R];
        totals[R][0] = float::fma(factors[R], float::from_i32(sum), totals[R][0]);
    });
}

/// Adds a block whose steps have floats for factors to the totals.
#[inline(always)]
fn add_steps<F: Fragments>(parts: &Parts<F>, x: Activations, block: u32, totals: &mut Totals) {
    unroll!(for STEP in 0..2 {
        if STEP < F::STEPS {
            let scales = [F::scale::<STEP>(&parts[0]), F::scale::<STEP>(&parts[1])];
            add_joined(
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

/// What a block's weights are too large by, times the activations.
#[inline(always)]
fn offsets<F: Fragments>(parts: &Parts<F>, x: Activations, block: u32) -> [i32; 4] {
    let mut all = [0; 4];
    if F::TERM == Term::Scaled {
        let scales = [F::scales(&parts[0]), F::scales(&parts[1])];
        let [a, b] = scales;
        all = mma::m16n8k32_s8([a[0], b[0], a[1], b[1]], x.digit_sums(block), all);
        // The upper bytes of digits' sums meet the last two lanes' columns.
        let byte = if warp::lane() % 4 < 2 { 1 } else { 256 };
        all = all.map(|sum| sum * (-F::OFFSET * byte));
    }
    all
}

/// Adds a block whose steps have whole factors to the totals.
#[inline(always)]
fn add_whole<F: Fragments>(parts: &Parts<F>, x: Activations, block: u32, totals: &mut Totals) {
    let mut all = offsets::<F>(parts, x, block);
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
    add(all, [scales[0][0], scales[1][0]], totals);
    if F::TERM == Term::Minima {
        let (activations, unit) = x.sums::<F>(block);
        let rows = [[F::minima(&parts[0]), 0], [F::minima(&parts[1]), 0]];
        let sums = fragment::multiply::<F>(rows, activations, [0; 4]);
        add(sums, [unit * scales[0][1], unit * scales[1][1]], totals);
    }
}

/// Adds group `index` of the warp's piece of two rows to the totals, or its first block.
#[inline(always)]
fn add_group<F: Fragments, const FIRST: bool>(rows: [Cursor; 2], x: Activations, index: u32, totals: &mut Totals) {
    let (t, block) = (warp::lane() % 4, warp::index() * (PIECE / F::COLUMNS) + index);
    let part = |row: Cursor| {
        let group = row.past(index * F::GROUP * F::BYTES);
        if FIRST {
            F::load_first(group, t)
        } else {
            F::load(group, t)
        }
    };
    let parts = [part(rows[0]), part(rows[1])];
    if F::WHOLE {
        add_whole::<F>(&parts, x, block, totals);
    } else {
        add_steps::<F>(&parts, x, block, totals);
    }
}

/// Adds the first `columns` columns, where a piece has several groups.
#[inline(always)]
fn add_small<F: Fragments>(rows: [Cursor; 2], x: Activations, columns: u32, totals: &mut Totals) {
    let (all, groups, mut index) = (PIECE / F::COLUMNS, columns / F::COLUMNS, 0);
    if F::TOGETHER == all && groups == all {
        unroll!(for I in 0..8 {
            if (I as u32) < all {
                add_group::<F, false>(rows, x, I as u32, totals);
            }
        });
        return;
    }
    while F::TOGETHER < all && index + F::TOGETHER <= groups {
        unroll!(for I in 0..4 {
            if (I as u32) < F::TOGETHER {
                add_group::<F, false>(rows, x, index + I as u32, totals);
            }
        });
        index = rolled(index + F::TOGETHER);
    }
    while index < groups {
        add_group::<F, false>(rows, x, index, totals);
        index = rolled(index + 1);
    }
    if F::GROUP > 1 && index * F::COLUMNS < columns {
        add_group::<F, true>(rows, x, index, totals);
    }
}

/// Sums of two rows, by digit, of the warp's first `columns` columns, of which the lane has a part; they begin at the
/// cursors.
#[inline(always)]
fn two_rows<F: Fragments>(rows: [Cursor; 2], x: Activations, columns: u32) -> Totals {
    let mut totals = [[0f32; 2]; 2];
    if F::COLUMNS < PIECE {
        add_small::<F>(rows, x, columns, &mut totals);
    } else if columns > 0 {
        add_group::<F, false>(rows, x, 0, &mut totals);
    }
    totals
}

/// The warp's sum of one of the lane's two rows: in odd lanes of the second. The lane's sums are to be multiplied by
/// `factor`.
#[inline(always)]
fn warp_sum<F: Fragments>(totals: Totals, factor: f32) -> f32 {
    let joined = |[low, high]: [f32; 2]| if F::WHOLE { float::fma(256.0, high, low) } else { low };
    let [first, second] = totals.map(|digits| joined(digits) * factor);
    let odd = warp::lane() % 2 == 1;
    let (own, other) = if odd { (second, first) } else { (first, second) };
    let sum = own + warp::shuffle_xor(other, 1);
    sum + warp::shuffle_xor(sum, 2)
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
    /// Leaves the warp's sum in step number `number`.
    #[inline(always)]
    fn leave(&self, sum: f32, number: u32) {
        let (row, t) = (warp::lane() / 4, warp::lane() % 4);
        if t < 2 {
            let own = warp::index() * ROWS + row + 8 * t;
            self.sums.store(number % 2 * SUMS + own, sum);
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
        let columns = columns.min(PIECE);
        warp::sync();
        let factor = x.own_factor(columns);
        let starts = ring.starts();
        let aligned = F::BY_ALIGNMENT && warp::all(starts[0].is_multiple_of(4));
        let (mut number, mut stage) = (0, 0);
        while row < self.matrix.rows {
            Rows::<F>::wait();
            let other = ring.other(stage);
            if row + stride < self.matrix.rows {
                // SAFETY: all have read what lay there, two steps ago.
                unsafe { ring.fetch(row + stride, stride, other) };
            }
            if number > 0 {
                // SAFETY: the launch's contract.
                unsafe { self.store(number - 1, row - stride, round) };
            }
            let totals = if aligned {
                two_rows::<F>(ring.cursors(starts, stage, true), x, columns)
            } else {
                two_rows::<F>(ring.cursors(starts, stage, false), x, columns)
            };
            self.leave(warp_sum::<F>(totals, factor), number);
            (row, number, stage) = (row + stride, number + 1, other);
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
