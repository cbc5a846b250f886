//! Matrix × vector by dp4a, quants and headers apart.
//!
//! **Computes** `y[r] = Σ_c W[r][c]·x[c]` for r < rows. W is laid out as [`Q4KRow`](crate::layout::Q4KRow) or [`Q6KRow`](crate::layout::Q6KRow), x as
//! 8-bit records ([`Narrow`]), y is f32.
//!
//! **Moves** rows·blocks·144 (Q4_K) or ·210 (Q6_K) bytes of weights, once, past L1.
//!
//! **Shape of work**: a warp takes two rows; eight lanes share a block of 256 columns (16 bytes of quants each), so a step
//! covers 1,024 columns. At 2,048 columns each lane keeps its share of x in registers (the `_2048` kernels) and only
//! weights move; other lengths read x again from L1 for each pair of rows. The next rows' loads are issued before the
//! sums of the last ones are shuffled together; both rows share the shuffles.
//!
//! **Launch**: [`q4k`], [`q6k`]; columns a multiple of 256; PDL allowed.

mod q4k;
mod q6k;
mod share;

use crate::layout::activation::Narrow;
use cuda_std::prelude::*;
use q4k::Q4KLane;
use q6k::Q6KLane;
use share::Share;

/// Rows that a warp multiplies at a time.
const ROWS: u32 = 2;
/// Blocks of 256 columns that a warp covers in a step.
const STEP_BLOCKS: u32 = 4;

/// A lane's share of one block of one row: two runs of 16 columns.
trait Lane: Copy {
    /// Distance between the lane's two runs, in runs of 16 columns.
    const SECOND: u32;

    /// The first of the two runs of 16 columns of lane `c` of the block's eight.
    fn first(c: u32) -> u32;

    /// Zero weights.
    fn zero() -> Self;

    /// Loads lane `c`'s share of block `b` of `row`.
    ///
    /// # Safety
    /// The row and the block exist in `weights`, which has `blocks` blocks a row.
    unsafe fn load(weights: *const u8, blocks: u32, row: u32, b: u32, c: u32) -> Self;

    /// `sum` plus this share times the activations of the same columns.
    fn dot(&self, c: u32, x: &Share, sum: f32) -> f32;
}

/// What a warp needs to find its rows.
#[derive(Clone, Copy)]
struct Work {
    weights: *const u8,
    x: *const u8,
    y: *mut f32,
    rows: u32,
    blocks: u32,
    lane: u32,
}

impl Work {
    /// The lane's place among the eight of its block.
    #[inline(always)]
    fn c(&self) -> u32 {
        self.lane & 7
    }

    /// The block that the lane works on in `step`.
    #[inline(always)]
    fn block(&self, step: u32) -> u32 {
        step * STEP_BLOCKS + (self.lane >> 3)
    }

    /// The weights of `row`, or zero past the matrix' or the row's end.
    #[inline(always)]
    unsafe fn load<L: Lane>(&self, row: u32, step: u32) -> L {
        let b = self.block(step);
        if row < self.rows && b < self.blocks {
            // SAFETY: row and block exist.
            unsafe { L::load(self.weights, self.blocks, row, b, self.c()) }
        } else {
            L::zero()
        }
    }

    /// The activations of the lane's columns; past the row's end the last block's, which meet zero weights.
    #[inline(always)]
    unsafe fn share<L: Lane>(&self, step: u32) -> Share {
        let b = self.block(step).min(self.blocks - 1);
        let first = L::first(self.c());
        // SAFETY: the record exists.
        unsafe { Share::load(self.x.add(b as usize * Narrow::BYTES), first, first + L::SECOND) }
    }

    /// Sums both rows over the warp, five shuffles for the two, and stores them.
    #[inline(always)]
    unsafe fn finish(&self, row: u32, sums: [f32; 2]) {
        let upper = self.lane >= 16;
        let (keep, send) = if upper { (sums[1], sums[0]) } else { (sums[0], sums[1]) };
        let mut sum = keep + warp::shuffle_xor(send, 16);
        sum += warp::shuffle_xor(sum, 8);
        sum += warp::shuffle_xor(sum, 4);
        sum += warp::shuffle_xor(sum, 2);
        sum += warp::shuffle_xor(sum, 1);
        let mine = row + u32::from(upper);
        if self.lane & 15 == 0 && mine < self.rows {
            // SAFETY: y has `rows` elements.
            unsafe { global::store(self.y.add(mine as usize), sum) };
        }
    }
}

#[inline(always)]
fn first_row() -> u32 {
    (thread::block_idx_x() * thread::block_dim_x() + thread::thread_idx_x()) / 32 * ROWS
}

#[inline(always)]
fn stride() -> u32 {
    thread::grid_dim_x() * thread::block_dim_x() / 32 * ROWS
}

/// Rows of 2,048 columns: the lane's share of x stays in registers.
#[inline(always)]
unsafe fn multiply_2048<L: Lane>(work: Work) {
    // A constant, so that addresses are cheap.
    let work = Work { blocks: 8, ..work };
    let mut row = first_row();
    // SAFETY: loads past the end give zero weights.
    let load = |row: u32| unsafe {
        [
            [work.load::<L>(row, 0), work.load(row, 1)],
            [work.load(row + 1, 0), work.load(row + 1, 1)],
        ]
    };
    let mut weights = load(row);
    pdl::launch_dependents();
    pdl::wait();
    // SAFETY: the launch before this one has written x.
    let x = unsafe { [work.share::<L>(0), work.share::<L>(1)] };
    while row < work.rows {
        let dot = |w: [L; 2]| w[1].dot(work.c(), &x[1], w[0].dot(work.c(), &x[0], 0.0));
        let sums = [dot(weights[0]), dot(weights[1])];
        let done = row;
        row += stride();
        if row < work.rows {
            weights = load(row);
        }
        // SAFETY: the rows belong to this warp.
        unsafe { work.finish(done, sums) };
    }
}

/// Rows of any length: x is read again for each pair of rows.
#[inline(always)]
unsafe fn multiply<L: Lane>(work: Work) {
    let (mut row, mut step) = (first_row(), 0);
    let steps = work.blocks.div_ceil(STEP_BLOCKS);
    // SAFETY: loads past the end give zero weights.
    let load = |row: u32, step: u32| unsafe { [work.load::<L>(row, step), work.load(row + 1, step)] };
    let mut weights = load(row, step);
    pdl::launch_dependents();
    pdl::wait();
    let mut sums = [0f32; 2];
    while row < work.rows {
        // SAFETY: the launch before this one has written x.
        let x = unsafe { work.share::<L>(step) };
        let now = weights;
        let (mut next_row, mut next_step) = (row, step + 1);
        if next_step == steps {
            (next_row, next_step) = (row + stride(), 0);
        }
        weights = load(next_row, next_step);
        sums = [now[0].dot(work.c(), &x, sums[0]), now[1].dot(work.c(), &x, sums[1])];
        if next_step == 0 {
            // SAFETY: the rows belong to this warp.
            unsafe { work.finish(row, sums) };
            sums = [0.0; 2];
        }
        (row, step) = (next_row, next_step);
    }
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $body:ident::<$lane:ty>;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The launch comes from this module: the pointers cover what the shape says.
        #[kernel(pdl)]
        pub unsafe fn $name(weights: *const u8, x: *const u8, y: *mut f32, rows: u32, blocks: u32) {
            let lane = thread::thread_idx_x() & 31;
            // SAFETY: the launch's contract.
            unsafe { $body::<$lane>(Work { weights, x, y, rows, blocks, lane }) }
        }
    )*};
}

kernels! {
    /// Matrix × vector, Q4_K rows × 8-bit activations, by dp4a.
    mmvq_q4k_dp4a = multiply::<Q4KLane>;
    /// Matrix × vector, Q4_K rows of 2,048 columns × 8-bit activations, by dp4a.
    mmvq_q4k_dp4a_2048 = multiply_2048::<Q4KLane>;
    /// Matrix × vector, Q6_K rows × 8-bit activations, by dp4a.
    mmvq_q6k_dp4a = multiply::<Q6KLane>;
    /// Matrix × vector, Q6_K rows of 2,048 columns × 8-bit activations, by dp4a.
    mmvq_q6k_dp4a_2048 = multiply_2048::<Q6KLane>;
}

#[cfg(not(target_arch = "nvptx64"))]
mod launch {
    use super::{ROWS, mmvq_q4k_dp4a, mmvq_q4k_dp4a_2048, mmvq_q6k_dp4a, mmvq_q6k_dp4a_2048};
    use crate::layout::Shape;
    use crate::mmvq::Operands;
    use crate::shape::{ShapeError, count, multiple};
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};

    /// Threads of a block: small blocks, so that the next launch's fit in beside the last of this one's.
    pub const THREADS: u32 = 128;

    fn config(kernel: &'static str, shape: Shape, max_blocks: u32) -> Result<(LaunchConfig, u32, u32), ShapeError> {
        let rows = count(kernel, "rows", shape.rows)?;
        let blocks = multiple(kernel, shape.columns, 256)? / 256;
        let grid = rows.div_ceil(ROWS * THREADS / 32).min(max_blocks.max(1));
        Ok((LaunchConfig::new(grid, THREADS).pdl(true), rows, blocks))
    }

    /// Q4_K rows × 8-bit records, on at most `max_blocks` blocks.
    ///
    /// # Errors
    /// When there are no rows, or the columns are no multiple of 256.
    pub fn q4k(shape: Shape, o: Operands, max_blocks: u32) -> Result<PreparedLaunch, ShapeError> {
        let (config, rows, blocks) = config("mmvq_q4k_dp4a", shape, max_blocks)?;
        let prepare = if blocks == 8 {
            mmvq_q4k_dp4a_2048::prepare
        } else {
            mmvq_q4k_dp4a::prepare
        };
        Ok(prepare(config, o.weights, o.x, o.y, rows, blocks))
    }

    /// Q6_K rows × 8-bit records, on at most `max_blocks` blocks.
    ///
    /// # Errors
    /// When there are no rows, or the columns are no multiple of 256.
    pub fn q6k(shape: Shape, o: Operands, max_blocks: u32) -> Result<PreparedLaunch, ShapeError> {
        let (config, rows, blocks) = config("mmvq_q6k_dp4a", shape, max_blocks)?;
        let prepare = if blocks == 8 {
            mmvq_q6k_dp4a_2048::prepare
        } else {
            mmvq_q6k_dp4a::prepare
        };
        Ok(prepare(config, o.weights, o.x, o.y, rows, blocks))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use launch::{THREADS, q4k, q6k};
