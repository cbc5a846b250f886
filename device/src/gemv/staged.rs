//! Rows of blocks, on their way through shared memory.
//!
//! Blocks of 17 to 210 bytes are badly aligned, and lanes that read neighbouring blocks get a few bytes of each line: from
//! shared memory that costs little, and bulk copies keep more bytes on the way than registers could. A block of threads
//! takes [`ROWS`] rows at a time, the next ones on their way meanwhile; a warp two of them, so that each activation is
//! read once for both, and a lane every 32nd [`Piece`](crate::format::piece::Piece). Activations lie in shared memory too, raised as pieces
//! ask for it, with four floats between the halves of 32 columns: so no two lanes of eight that read at once meet in a
//! bank, whatever the columns of their pieces. Rows longer than [`COLUMNS`] come in several rounds, whose sums meet in y.

use super::{Extra, rank_stride};
use crate::format::Format;
use crate::format::piece::{Cursor, Pieces, RAISE};
use cuda_std::arch::HAS_BULK_COPY;
use cuda_std::mbarrier::{self, Barrier};
use cuda_std::prelude::*;

/// Threads of a block.
pub(super) const THREADS: u32 = 256;
/// Rows that a block of threads takes at a time: two for each warp.
pub(super) const ROWS: u32 = THREADS / 16;
/// Columns of a round.
const COLUMNS: u32 = 2048;
/// Bytes before the activations: a barrier for each stage.
const HEAD: u32 = 16;
/// Floats that 32 activations take.
const STRIDE: u32 = 36;

/// Bytes that a row's part of `columns` columns may take from a multiple of 16 to the next.
const fn pitch(columns: u32, block: u32, bytes: u32) -> u32 {
    (columns / block * bytes).next_multiple_of(16) + 16
}

/// Columns of a round of a matrix.
const fn round_columns(columns: u32) -> u32 {
    if columns < COLUMNS { columns } else { COLUMNS }
}

/// Bytes of shared memory of a launch for rows of `columns` columns, in blocks of `block` columns and `bytes` bytes.
pub(super) const fn shared_bytes(columns: u32, block: u32, bytes: u32) -> u32 {
    let columns = round_columns(columns);
    HEAD + columns / 32 * STRIDE * 4 + columns / 8 * 4 + 2 * ROWS * pitch(columns, block, bytes)
}

/// Where a raised activation lies.
#[inline(always)]
fn place(column: u32) -> u32 {
    column / 32 * STRIDE + column % 32 + (column & 16) / 4
}

/// The activations of a round.
#[derive(Clone, Copy)]
struct Activations {
    raised: Shared<f32>,
    /// Of eight columns each, not raised.
    sums: Shared<f32>,
}

impl Activations {
    #[inline(always)]
    fn at(columns: u32) -> Self {
        let floats = columns / 32 * STRIDE;
        Self {
            raised: shared::dynamic(HEAD, floats),
            sums: shared::dynamic(HEAD + 4 * floats, columns / 8),
        }
    }

    /// Brings `columns` activations in. All threads of the block call this.
    #[inline(always)]
    unsafe fn fill(self, x: *const f32, columns: u32) {
        let mut eight = thread::thread_idx_x();
        while eight < columns / 8 {
            // SAFETY: the caller's: eight more floats, aligned to 16 bytes.
            let halves = unsafe {
                let x = x.add(8 * eight as usize).cast::<F32x4>();
                [global::load(x).0, global::load(x.add(1)).0]
            };
            let mut sums = [0f32; 2];
            unroll!(for I in 0..2 {
                let [a, b, c, d] = halves[I];
                sums[I] = (a + b) + (c + d);
                let raised = F32x4([a * RAISE, b * RAISE, c * RAISE, d * RAISE]);
                self.raised.store_as(place(8 * eight) + 4 * I as u32, raised);
            });
            self.sums.store(eight, sums[0] + sums[1]);
            eight += THREADS;
        }
    }

    /// A piece's runs, and the sum of each.
    #[inline(always)]
    fn of<F: Pieces>(self, piece: u32) -> ([[f32; 8]; 4], [f32; 4]) {
        let first = F::first_column(piece);
        let (mut x, mut sums) = ([[0.0; 8]; 4], [0.0; 4]);
        unroll!(for K in 0..4 {
            let column = first + F::RUNS[K];
            let at = place(column);
            let ([a, b, c, d], [e, f, g, h]) = (
                self.raised.load_as::<F32x4>(at).0,
                self.raised.load_as::<F32x4>(at + 4).0,
            );
            x[K] = [a, b, c, d, e, f, g, h];
            sums[K] = self.sums.load(column / 8);
        });
        (x, sums)
    }
}

/// The matrix, and how it is cut.
#[derive(Clone, Copy)]
struct Matrix {
    start: *const u8,
    rows: u32,
    columns: u32,
    row_bytes: usize,
    /// Bytes of a round's part of a row, and of its place in shared memory.
    part_bytes: u32,
    pitch: u32,
}

/// Where a block of threads stands: a round, and the first of its rows there.
#[derive(Clone, Copy)]
struct Step {
    round: u32,
    row: u32,
}

impl Matrix {
    #[inline(always)]
    fn new<F: Format>(start: *const u8, rows: u32, columns: u32) -> Self {
        let round = round_columns(columns);
        Self {
            start,
            rows,
            columns,
            row_bytes: F::row_bytes(columns),
            part_bytes: round / F::BLOCK * F::BYTES,
            pitch: pitch(round, F::BLOCK, F::BYTES),
        }
    }

    /// Columns of a round: the last one may have fewer.
    #[inline(always)]
    fn columns_of(&self, round: u32) -> u32 {
        round_columns(self.columns - round * COLUMNS)
    }

    /// Start and end of a row's part.
    #[inline(always)]
    fn part<F: Format>(&self, row: u32, round: u32) -> (*const u8, u32) {
        let before = row as usize * self.row_bytes + round as usize * self.part_bytes as usize;
        (
            self.start.wrapping_add(before),
            self.columns_of(round) / F::BLOCK * F::BYTES,
        )
    }

    #[inline(always)]
    fn after(&self, at: Step) -> Step {
        let row = at.row + ROWS * thread::grid_dim_x();
        if row < self.rows {
            return Step { row, ..at };
        }
        Step {
            round: at.round + 1,
            row: ROWS * thread::block_idx_x(),
        }
    }

    #[inline(always)]
    fn has(&self, at: Step) -> bool {
        at.round * COLUMNS < self.columns
    }
}

/// The two places in shared memory that rows come to.
#[derive(Clone, Copy)]
struct Ring {
    bytes: Shared<u8>,
    barriers: Shared<u64>,
}

impl Ring {
    #[inline(always)]
    fn at(offset: u32, pitch: u32) -> Self {
        Self {
            bytes: shared::dynamic(offset, 2 * ROWS * pitch),
            barriers: shared::dynamic(0, 2),
        }
    }

    /// One thread calls this, before all meet at a barrier.
    #[inline(always)]
    fn init(self) {
        Barrier::at(self.barriers, 0).init(ROWS);
        Barrier::at(self.barriers, 1).init(ROWS);
        mbarrier::fence_init();
    }

    /// Starts to bring the rows of step number `number` in. All threads of the block call this; the first [`ROWS`] take a
    /// row each.
    #[inline(always)]
    unsafe fn fetch<F: Format>(self, matrix: &Matrix, at: Step, number: u32) {
        let (slot, barrier) = (thread::thread_idx_x(), Barrier::at(self.barriers, number & 1));
        if slot >= ROWS {
            return;
        }
        if at.row + slot >= matrix.rows {
            barrier.arrive();
            return;
        }
        let (start, bytes) = matrix.part::<F>(at.row + slot, at.round);
        let skew = start as usize as u32 & 15;
        let from = start.wrapping_sub(skew as usize);
        // A matrix may end within sixteen bytes, of which a copy would take the rest too.
        let left =
            (matrix.rows - at.row - slot) as usize * matrix.row_bytes - at.round as usize * matrix.part_bytes as usize;
        let whole = (skew + bytes).next_multiple_of(16);
        let copied = if (whole - skew) as usize > left {
            whole - 16
        } else {
            whole
        };
        let to = self
            .bytes
            .slice(((number & 1) * ROWS + slot) * matrix.pitch, matrix.pitch);
        // SAFETY: the copy ends with the matrix at the latest and begins at most 15 bytes before it, within the sixteen
        // that its first byte is in.
        unsafe {
            if HAS_BULK_COPY {
                barrier.arrive_expect(copied);
                let policy = global::CachePolicy::evict_first();
                copy::bulk_policy(to.address_of(0), from, copied, barrier, policy);
            } else {
                let mut i = 0;
                while i < copied {
                    copy::async_16(to.address_of(i), from.add(i as usize));
                    i += 16;
                }
                copy::commit();
                barrier.arrive();
            }
        }
        let mut i = copied;
        while i < whole {
            let mut byte = 0;
            if i < skew + bytes {
                // SAFETY: the byte belongs to the row.
                byte = unsafe { from.add(i as usize).read() };
            }
            to.store(i, byte);
            i += 1;
        }
    }

    /// Waits until the rows of step number `number` are there. All threads of the block call this, behind a barrier
    /// that is behind the fetch.
    #[inline(always)]
    fn wait(self, number: u32) {
        if HAS_BULK_COPY {
            Barrier::at(self.barriers, number & 1).wait(number >> 1 & 1);
        } else {
            copy::wait::<0>();
            thread::sync_threads();
        }
    }

    /// A row's part of step number `number`.
    #[inline(always)]
    fn row<F: Format>(self, matrix: &Matrix, at: Step, slot: u32, number: u32) -> Cursor {
        let (start, _) = matrix.part::<F>(at.row + slot, at.round);
        Cursor {
            memory: self.bytes,
            at: ((number & 1) * ROWS + slot) * matrix.pitch + (start as usize as u32 & 15),
        }
    }
}

/// The lane's part of the products of two rows.
#[inline(always)]
fn two_rows<F: Pieces>(rows: [Cursor; 2], x: Activations, columns: u32) -> [f32; 2] {
    let (mut sums, mut piece) = ([0f32; 2], warp::lane());
    while piece < columns / 32 {
        let (values, runs) = x.of::<F>(piece);
        unroll!(for R in 0..2 {
            sums[R] += F::load(rows[R], piece).dot::<F>(&values, &runs);
        });
        piece += 32;
    }
    sums
}

/// # Safety
/// As the kernels.
#[inline(always)]
pub(super) unsafe fn multiply<F: Pieces>(
    weights: *const u8,
    x: *const f32,
    y: *mut f32,
    rows: u32,
    columns: u32,
    extra: Extra,
) {
    let (id, rank) = (thread::thread_idx_x(), thread::block_idx_y() as usize);
    if !extra.ids.is_null() {
        // The launch before chooses the matrix.
        pdl::wait();
    }
    // SAFETY: the launch's contract: every rank has an expert, an x and results.
    let (matrix, x, y, factor) = unsafe {
        let expert = extra.expert(rank);
        (
            Matrix::new::<F>(weights.add(expert * extra.expert_bytes as usize), rows, columns),
            x.add(rank * extra.x_stride as usize),
            y.add(rank * rank_stride(rows) as usize),
            extra.factor(expert),
        )
    };
    let most = round_columns(columns);
    let activations = Activations::at(most);
    let ring = Ring::at(HEAD + most / 32 * STRIDE * 4 + most / 8 * 4, matrix.pitch);
    if id == 0 {
        ring.init();
    }
    thread::sync_threads();
    let (mut at, mut number) = (
        Step {
            round: 0,
            row: ROWS * thread::block_idx_x(),
        },
        0,
    );
    // SAFETY: a block of threads has rows.
    unsafe { ring.fetch::<F>(&matrix, at, 0) };
    pdl::launch_dependents();
    pdl::wait();
    // SAFETY: x has a float for each column; the launch before this one has written it.
    unsafe { activations.fill(x, matrix.columns_of(0)) };
    thread::sync_threads();
    while matrix.has(at) {
        let next = matrix.after(at);
        if matrix.has(next) {
            // SAFETY: all have read what lay there: they met below.
            unsafe { ring.fetch::<F>(&matrix, next, number + 1) };
        }
        ring.wait(number);
        let slot = 2 * (id / 32);
        let row = at.row + slot;
        if row < rows {
            let other = slot + u32::from(row + 1 < rows);
            let cursors = [slot, other].map(|slot| ring.row::<F>(&matrix, at, slot, number));
            let [a, b] = two_rows::<F>(cursors, activations, matrix.columns_of(at.round));
            let sums = [warp::sum(a), warp::sum(b)];
            let (lane, last) = (
                warp::lane(),
                !matrix.has(Step {
                    round: at.round + 1,
                    ..at
                }),
            );
            if lane < 2 && row + lane < rows {
                let sum = if lane == 0 { sums[0] } else { sums[1] };
                // SAFETY: y and the bias have `rows` elements; the rounds before were this thread's.
                unsafe {
                    let y = y.add((row + lane) as usize);
                    let sum = if at.round == 0 {
                        sum
                    } else {
                        global::load(y.cast_const()) + sum
                    };
                    let result = if last {
                        sum * factor + extra.term(row + lane)
                    } else {
                        sum
                    };
                    global::store(y, result);
                }
            }
        }
        thread::sync_threads();
        if next.round != at.round && matrix.has(next) {
            // SAFETY: as above; all have used the round's activations.
            unsafe { activations.fill(x.add((next.round * COLUMNS) as usize), matrix.columns_of(next.round)) };
            thread::sync_threads();
        }
        (at, number) = (next, number + 1);
    }
}
