//! Rows on their way through shared memory, sixteen at a time.
//!
//! Blocks of 17 to 210 bytes are badly aligned, and lanes that read neighbouring blocks get a few bytes of each line: from
//! shared memory that costs little. Sixteen threads bring a row, 256 bytes at a time; sixteen rows are multiplied while
//! the next are on their way.

use crate::format::Format;
use crate::format::cursor::Cursor;
use core::marker::PhantomData;
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// Rows that a block of threads takes at a time: those of a product of tensor cores.
pub(super) const ROWS: u32 = 16;
/// Columns of a warp.
pub(super) const PIECE: u32 = 256;
/// Warps of a block.
pub(super) const WARPS: u32 = 8;
/// Columns of a round: rows of more come in several.
pub(super) const COLUMNS: u32 = WARPS * PIECE;
/// Steps that there is room for.
const STAGES: u32 = 2;
/// Bytes that the threads of a row bring at once.
const WIDTH: u32 = 256;

/// Columns of a round of a matrix.
pub(super) const fn round_columns(columns: u32) -> u32 {
    if columns < COLUMNS { columns } else { COLUMNS }
}

/// Bytes from one row to the next: its part of `columns` columns takes so many from a multiple of 16 on, and an odd number
/// of sixteens, so that eight rows' words, four of each, lie in different banks.
const fn pitch(columns: u32, block: u32, bytes: u32) -> u32 {
    (round_columns(columns) / block * bytes).div_ceil(32) * 32 + 16
}

/// Bytes of shared memory of the rows of a launch.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const fn bytes(columns: u32, block: u32, bytes: u32) -> u32 {
    STAGES * ROWS * pitch(columns, block, bytes)
}

/// The matrix.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    /// Its first byte.
    pub start: *const u8,
    pub rows: u32,
    pub columns: u32,
}

/// The rows' parts in one round: what a thread must know to bring its own.
pub(super) struct Rows<F> {
    matrix: Matrix,
    memory: Shared<u8>,
    pitch: u32,
    /// Where the first row's part begins in sixteen bytes.
    skew: u32,
    /// The thread's first sixteen bytes in the next step, and where they come to in a stage.
    from: *const u8,
    to: u32,
    /// The first byte behind the part, from there on.
    end: u32,
    /// Whether the part is the longest there is.
    whole: bool,
    format: PhantomData<F>,
}

impl<F: Format> Rows<F> {
    /// Bytes of the longest part.
    const LONGEST: u32 = COLUMNS / F::BLOCK * F::BYTES;
    /// Times [`WIDTH`] bytes of it, wherever it begins.
    const TIMES: u32 = (Self::LONGEST + 15).div_ceil(WIDTH);

    /// The parts of round `round`, in steps from row `row` on; the stages lie at `offset`.
    #[inline(always)]
    pub fn new(matrix: Matrix, offset: u32, round: u32, row: u32) -> Self {
        let (id, row_bytes) = (thread::thread_idx_x(), F::row_bytes(matrix.columns));
        let before = round * Self::LONGEST;
        let bytes = round_columns(matrix.columns - round * COLUMNS) / F::BLOCK * F::BYTES;
        let start = matrix.start.wrapping_add(row as usize * row_bytes + before as usize);
        let from = start.wrapping_add((id / 16) as usize * row_bytes);
        let (skew, own) = (from as usize as u32 & 15, 16 * (id % 16));
        let pitch = pitch(matrix.columns, F::BLOCK, F::BYTES);
        Self {
            matrix,
            memory: shared::dynamic(offset, STAGES * ROWS * pitch),
            pitch,
            skew: start as usize as u32,
            from: from.wrapping_sub(skew as usize).wrapping_add(own as usize),
            to: id / 16 * pitch + own,
            end: (skew + bytes).saturating_sub(own),
            whole: bytes == Self::LONGEST,
            format: PhantomData,
        }
    }

    /// The stage that is not at `stage`; the first is at 0.
    #[inline(always)]
    pub fn other(&self, stage: u32) -> u32 {
        ROWS * self.pitch - stage
    }

    /// Sends for the step that begins at row `row` into the stage at `stage`, and goes on by `rows` rows. All threads of
    /// the block call this.
    ///
    /// # Safety
    /// Nobody reads what lay there.
    #[inline(always)]
    pub unsafe fn fetch(&mut self, row: u32, rows: u32, stage: u32) {
        let to = self.memory.address_of(self.to + stage);
        // SAFETY: the caller's; the matrix has a row behind those of the step, or each thread asks.
        unsafe {
            if row + ROWS < self.matrix.rows {
                self.fetch_inside(to);
            } else {
                self.fetch_end(row + thread::thread_idx_x() / 16, self.to + stage);
            }
        }
        copy::commit();
        self.from = self
            .from
            .wrapping_add(rows as usize * F::row_bytes(self.matrix.columns));
    }

    /// The thread's part of a row that another one follows, to address `to`.
    #[inline(always)]
    unsafe fn fetch_inside(&self, to: u32) {
        // SAFETY: these sixteen bytes hold some of the part's; before it and behind it there are others of the matrix, or
        // of the sixteen that its first byte is in.
        let send = |at: u32| unsafe { copy::async_16(to + at, self.from.add(at as usize)) };
        if self.whole {
            unroll!(for I in 0..16 {
                let at = WIDTH * I as u32;
                if (I as u32) < Self::TIMES && (at + WIDTH <= Self::LONGEST || at < self.end) {
                    send(at);
                }
            });
        } else {
            let mut at = 0;
            while at < self.end {
                send(at);
                at = rolled(at + WIDTH);
            }
        }
    }

    /// The thread's part of a row of which a copy could go beyond the matrix, or zeros behind the last.
    #[inline(always)]
    unsafe fn fetch_end(&self, row: u32, to: u32) {
        let (there, mut at) = (row < self.matrix.rows, 0);
        while at < self.end {
            if there && at + 16 <= self.end {
                // SAFETY: these bytes are the part's, or in the sixteen that its first one is in.
                unsafe { copy::async_16(self.memory.address_of(to + at), self.from.add(at as usize)) };
            } else {
                let mut i = at;
                while i < at + 16 {
                    let mut byte = 0;
                    if there && i < self.end {
                        // SAFETY: the byte is the part's, or in the sixteen that its first one is in.
                        byte = unsafe { global::load(self.from.add(i as usize)) };
                    }
                    self.memory.store(to + i, byte);
                    i += 1;
                }
            }
            at += WIDTH;
        }
    }

    /// Where the warp's columns of the lane's two rows begin in every stage: sixteen rows are a multiple of sixteen bytes, so
    /// that each step's rows begin at the same places in sixteen. They are kept, not made anew in each step. Eight rows are
    /// a multiple of eight bytes: both begin at the same place in eight.
    #[inline(always)]
    pub fn starts(&self) -> [u32; 2] {
        let before = PIECE / F::BLOCK * F::BYTES * warp::index();
        let [first, second] = [0, 8].map(|more| {
            let row = warp::lane() / 4 + more;
            let skew = self.skew.wrapping_add(row * F::row_bytes(self.matrix.columns) as u32) & 15;
            row * self.pitch + skew + before
        });
        [rolled(first), rolled((second - first) / 8)]
    }

    /// What lies at such places in the stage at `stage`, known to be a multiple of four or not.
    #[inline(always)]
    pub fn cursors(&self, [first, eights]: [u32; 2], stage: u32, aligned: bool) -> [Cursor; 2] {
        let first = stage + first;
        [first, first + 8 * eights].map(|start| Cursor {
            memory: self.memory,
            start,
            bytes: 0,
            aligned,
        })
    }

    /// Waits for the step that was sent for last. All threads of the block call this.
    #[inline(always)]
    pub fn wait() {
        copy::wait::<{ STAGES - 2 }>();
        thread::sync_threads();
    }
}
