//! Rows on their way through shared memory: to each warp its own columns of sixteen rows at a time.
//!
//! Blocks of 17 to 210 bytes are badly aligned, and lanes that read neighbouring blocks get a few bytes of each line: from
//! shared memory that costs little. A warp's columns of a row are a *piece*. Two lanes bring it, 32 bytes at a time, which
//! begin at multiples of 32 where rows are as long; one piece is multiplied while the next is on its way.
//! No other warp is waited for.

use crate::format::Format;
use crate::format::cursor::Cursor;
use core::marker::PhantomData;
use cuda_std::prelude::*;

/// Rows that a block of threads takes at a time: those of a product of tensor cores.
pub(super) const ROWS: u32 = 16;
/// Columns of a piece.
pub(super) const PIECE: u32 = 256;
/// Warps of a block at most; in each round of the columns they have a piece each.
pub(super) const WARPS: u32 = 8;
/// Steps that a warp has room for.
const STAGES: u32 = 2;

/// Bytes from one row's piece to the next: it takes so many from a multiple of 16 on, and an odd number of sixteens, so
/// that eight rows' words, four of each, lie in different banks.
const fn pitch(block: u32, bytes: u32) -> u32 {
    (PIECE / block * bytes).div_ceil(32) * 32 + 16
}

/// Warps of a launch over rows of `columns` columns.
pub(super) const fn warps(columns: u32) -> u32 {
    let pieces = columns.div_ceil(PIECE);
    if pieces < WARPS { pieces } else { WARPS }
}

/// Bytes of shared memory of the pieces of a launch.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const fn bytes(columns: u32, block: u32, bytes: u32) -> u32 {
    warps(columns) * STAGES * ROWS * pitch(block, bytes)
}

/// The matrix.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    /// Its first byte.
    pub start: *const u8,
    pub rows: u32,
    pub columns: u32,
}

/// A warp's pieces in one round: what a lane must know to bring its part.
pub(super) struct Pieces<F> {
    matrix: Matrix,
    /// Where the warp's pieces come to.
    memory: Shared<u8>,
    /// Where the first row's piece begins in sixteen bytes.
    skew: u32,
    /// Bytes of the piece: none where the round has none for the warp.
    bytes: u32,
    /// The lane's first sixteen bytes in the next step, and where they come to in a stage.
    from: *const u8,
    to: u32,
    /// Which bytes from there on the lane brings: those of every other sixteen.
    first: u32,
    end: u32,
    format: PhantomData<F>,
}

impl<F: Format> Pieces<F> {
    const PITCH: u32 = pitch(F::BLOCK, F::BYTES);
    const BYTES: u32 = PIECE / F::BLOCK * F::BYTES;
    /// Times 32 bytes of the longest piece, wherever it begins.
    const TIMES: u32 = (Self::BYTES + 31).div_ceil(32);

    /// The warp's pieces of round `round`, in steps from row `row` on.
    #[inline(always)]
    pub fn new(matrix: Matrix, offset: u32, round: u32, row: u32) -> Self {
        let (warp, lane) = (warp::index(), warp::lane());
        let first = (WARPS * round + warp) * PIECE;
        let columns = matrix.columns.saturating_sub(first).min(PIECE);
        let (before, bytes) = (first / F::BLOCK * F::BYTES, columns / F::BLOCK * F::BYTES);
        let row_bytes = F::row_bytes(matrix.columns);
        let start = matrix.start.wrapping_add(row as usize * row_bytes + before as usize);
        let from = start.wrapping_add((lane / 2) as usize * row_bytes);
        let (skew, odd) = (from as usize as u32 & 15, from as usize as u32 >> 4 & 1);
        // The lane's first, counted in sixteens from the one that the piece begins in.
        let sixteen = (lane % 2) as i32 - odd as i32;
        Self {
            matrix,
            memory: shared::dynamic(offset + warp * STAGES * ROWS * Self::PITCH, STAGES * ROWS * Self::PITCH),
            skew: start as usize as u32,
            bytes,
            from: from.wrapping_sub(skew as usize).wrapping_offset(16 * sixteen as isize),
            to: (lane / 2 * Self::PITCH).wrapping_add_signed(16 * sixteen),
            // What lies before the piece is not copied.
            first: if sixteen < 0 { 32 } else { 0 },
            end: if bytes > 0 {
                (skew + bytes).wrapping_add_signed(-16 * sixteen)
            } else {
                0
            },
            format: PhantomData,
        }
    }

    /// Blocks of the piece.
    #[inline(always)]
    pub fn blocks(&self) -> u32 {
        self.bytes / F::BYTES
    }

    /// Sends for step number `number`, which begins at row `row`, and goes on by `rows` rows. The whole warp calls this.
    #[inline(always)]
    pub unsafe fn fetch(&mut self, row: u32, rows: u32, number: u32) {
        let own = row + warp::lane() / 2;
        let to = self.to.wrapping_add(number % STAGES * ROWS * Self::PITCH);
        if row >= self.matrix.rows {
            // Nothing to send for: an empty group.
        } else if own + 1 < self.matrix.rows {
            unroll!(for I in 0..16 {
                let at = 32 * I as u32;
                if (I as u32) < Self::TIMES && self.brings(at) {
                    // SAFETY: these sixteen bytes hold some of the piece's; before it and behind it there are others of
                    // the matrix, or of the sixteen that its first byte is in.
                    unsafe { copy::async_16(self.memory.address_of(to.wrapping_add(at)), self.from.add(at as usize)) };
                }
            });
        } else {
            // SAFETY: as the caller's.
            unsafe { self.fetch_end(own, to) };
        }
        copy::commit();
        self.from = self
            .from
            .wrapping_add(rows as usize * F::row_bytes(self.matrix.columns));
    }

    /// Whether the lane brings the bytes from `at` on.
    #[inline(always)]
    fn brings(&self, at: u32) -> bool {
        (at > 0 || self.first == 0) && at < self.end
    }

    /// The lane's part of the last row, of which a copy could go beyond the matrix, or zeros behind it.
    #[inline(always)]
    unsafe fn fetch_end(&self, row: u32, to: u32) {
        let mut at = 0;
        while at < 32 * Self::TIMES {
            if self.brings(at) {
                let mut i = at;
                while i < at + 16 {
                    let mut byte = 0;
                    if row < self.matrix.rows && i < self.end {
                        // SAFETY: the byte is the piece's, or in the sixteen that its first one is in.
                        byte = unsafe { global::load(self.from.add(i as usize)) };
                    }
                    self.memory.store(to.wrapping_add(i), byte);
                    i += 1;
                }
            }
            at += 32;
        }
    }

    /// A row's piece in step number `number`.
    #[inline(always)]
    pub fn row(&self, row: u32, number: u32) -> Cursor {
        // Rows of a step begin at the same place in sixteen bytes in each, because sixteen rows do.
        let skew = self.skew.wrapping_add(row * F::row_bytes(self.matrix.columns) as u32) & 15;
        Cursor {
            memory: self.memory,
            start: (number % STAGES * ROWS + row) * Self::PITCH + skew,
            bytes: 0,
        }
    }

    /// Waits for the step that was sent for before the last one. The whole warp calls this.
    #[inline(always)]
    pub fn wait() {
        copy::wait::<{ STAGES - 1 }>();
        warp::sync();
    }
}
