//! The language model head: logits of the whole vocabulary and each block's best token.
//!
//! `logits[r] = w_r · (rms(x) ∘ g)` for the rows below `rows`; `best[block]` is the block's highest logit and its row, the
//! lowest row among equals; NaN never wins. [`advance`](super::advance) finds the best of the blocks.
//!
//! **Bytes**: the matrix, once, past L1 (255 MB of Q6_K at 151,936 × 2,048: the largest single read of a token).
//!
//! **Shape of the work**: blocks stride over groups of 16 rows, a warp for every 256 columns, the next tile's loads issued
//! before the sums of the last one meet; the activation is split once a block. The running best is kept by the sixteen
//! lanes that see the sums.
//!
//! **Launch**: [`head_argmax`].

use super::{
    meeting::Meeting,
    residual::Residual,
    rows::{Matrix, Place, activation, with_tile},
    state::NO_TOKEN,
};
use crate::tile::Tile;
use cuda_std::prelude::*;

/// A row and its logit.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Best {
    /// The logit.
    pub logit: f32,
    /// The row: a token.
    pub token: u32,
}

impl Best {
    /// What loses to every number; token 0, so that a vocabulary of NaN has a token.
    pub const NONE: Self = Self {
        logit: f32::NEG_INFINITY,
        token: 0,
    };

    /// The better of both: the higher logit, the lower token among equals.
    #[inline(always)]
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let better = other.logit > self.logit || (other.logit == self.logit && other.token < self.token);
        if better { other } else { self }
    }

    /// The best of the warp, in every lane. All lanes call this together.
    #[inline(always)]
    #[must_use]
    pub fn of_warp(mut self) -> Self {
        unroll!(for I in 0..5 {
            let other = Self {
                logit: warp::shuffle_xor(self.logit, 16 >> I),
                token: warp::shuffle_xor(self.token, 16 >> I),
            };
            self = self.or(other);
        });
        self
    }

    /// Bytes of shared memory that [`of_block`](Self::of_block) uses, from the start of the block's.
    pub(crate) const BLOCK_BYTES: u32 = 8 * 8;

    /// The best of a block of 256 threads, in thread 0. All threads call this together.
    #[inline(always)]
    pub(crate) fn of_block(self) -> Self {
        let parts: Shared<U32x2> = shared::dynamic(0, 8);
        let mine = self.of_warp();
        if warp::lane() == 0 {
            let word = U32x2([mine.logit.to_bits(), mine.token]);
            parts.store(thread::thread_idx_x() / 32, word);
        }
        thread::sync_threads();
        let mut all = Self::NONE;
        unroll!(for I in 0..8 {
            let U32x2([logit, token]) = parts.load(I as u32);
            all = all.or(Self {
                logit: f32::from_bits(logit),
                token,
            });
        });
        all
    }

    /// The token that is emitted: [`NO_TOKEN`] where no logit was a number.
    #[inline(always)]
    #[must_use]
    pub(super) fn emitted(self) -> u32 {
        if self.logit > f32::NEG_INFINITY {
            self.token
        } else {
            NO_TOKEN
        }
    }

    /// Stores the entry as one word.
    ///
    /// # Safety
    /// `to` is writable.
    #[inline(always)]
    pub(crate) unsafe fn store(self, to: *mut Self) {
        // SAFETY: the caller's.
        unsafe { global::store(to.cast::<U32x2>(), U32x2([self.logit.to_bits(), self.token])) }
    }

    /// Loads an entry as one word.
    ///
    /// # Safety
    /// `from` is readable.
    #[inline(always)]
    pub(super) unsafe fn load(from: *const Self) -> Self {
        // SAFETY: the caller's.
        let U32x2([logit, token]) = unsafe { global::load(from.cast::<U32x2>()) };
        Self {
            logit: f32::from_bits(logit),
            token,
        }
    }
}

/// Constants of a head.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct HeadShape {
    /// Rows of the vocabulary; the matrix's last group may have more.
    pub rows: u32,
    /// Columns, a multiple of 256.
    pub columns: u32,
    /// The final norm's epsilon.
    pub eps: f32,
    /// The logits are capped as `c · tanh(logit / c)`; 0: not at all.
    pub softcap: f32,
}

/// Logits and each block's best token, with the final norm folded in.
///
/// Prepare it with [`head_argmax`].
///
/// # Safety
/// The arguments of a launch that [`head_argmax`] prepared.
#[kernel(pdl)]
pub unsafe fn decode_head(residual: Residual, logits: *mut f32, best: *mut Best, matrix: Matrix, shape: HeadShape) {
    let at = Place::new(shape.columns / 256);
    // SAFETY: no more blocks than row groups; the vectors are as long as the shape says.
    unsafe {
        let mine = with_tile!(matrix.kind, T => stream::<T>(at, &matrix, residual, logits, &shape));
        if at.warp == 0 {
            let mine = mine.of_warp();
            if at.lane == 0 {
                mine.store(best.add(thread::block_idx_x() as usize));
            }
        }
    }
}

/// The block's row groups, one after the other; returns the best that this lane of the first warp has seen.
#[inline(always)]
unsafe fn stream<T: Tile>(at: Place, matrix: &Matrix, residual: Residual, logits: *mut f32, shape: &HeadShape) -> Best {
    let tiles = matrix.tiles.as_ptr();
    let mut group = thread::block_idx_x();
    let mut parity = 0;
    let mut best = Best::NONE;
    // SAFETY: the caller's.
    unsafe {
        let mut tile: T = at.tile(tiles, group, at.warp);
        pdl::launch_dependents();
        pdl::wait();
        let columns = at.columns(residual.gained.as_ptr(), at.warp);
        let squares = residual.squares(shape.columns, at.lane);
        let columns = activation::<T>(&columns, at.lane);
        let scale = squares.inverse_rms(shape.columns, shape.eps);
        while group < matrix.groups {
            let part = tile.multiply(tile.scales(at.lane), &columns, at.lane);
            let next = group + thread::grid_dim_x();
            if next < matrix.groups {
                tile = at.tile(tiles, next, at.warp);
            }
            let meeting = Meeting::at(parity * Meeting::bytes(at.warps), at.warps);
            meeting.put(part, at.warp, at.lane);
            thread::sync_threads();
            if at.warp == 0 {
                let logit = capped(meeting.total(at.lane, at.warps) * scale, shape.softcap);
                let token = 16 * group + (at.lane & 15);
                if at.lane < 16 && token < shape.rows {
                    global::store(logits.add(token as usize), logit);
                    best = best.or(Best { logit, token });
                }
            }
            parity ^= 1;
            group = next;
        }
    }
    best
}

/// `cap · tanh(logit / cap)`; the logit itself for a cap of 0.
#[inline(always)]
pub(crate) fn capped(logit: f32, cap: f32) -> f32 {
    if cap == 0.0 {
        return logit;
    }
    // tanh through exp, whose error is the float's: tanh.approx has 11 bits.
    let e = float::exp(-2.0 * float::abs(logit / cap));
    let tanh = float::div(1.0 - e, 1.0 + e);
    cap * if logit < 0.0 { -tanh } else { tanh }
}

/// The launch for `shape` on `blocks` blocks at most; `logits` of `shape.rows` floats, `best` of as many entries as the
/// launch has blocks. The warps must cover the columns: at most 4,096 of them.
///
/// # Errors
/// Columns that are no multiple of 256 or too many, or a matrix with fewer rows than the shape.
#[cfg(not(target_arch = "nvptx64"))]
pub fn head_argmax(
    residual: Residual,
    logits: DevicePtr<f32>,
    best: DevicePtr<Best>,
    matrix: Matrix,
    shape: HeadShape,
    blocks: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let refuse = |rule| Err(crate::shape::ShapeError::new("decode_head", rule));
    let columns = crate::shape::multiple("decode_head", shape.columns as usize, 256)?;
    if columns > 4096 {
        return refuse(format!("{columns} columns; it takes up to 4096"));
    }
    if shape.rows == 0 || shape.rows.div_ceil(16) != matrix.groups {
        return refuse(format!("{} rows in {} groups of 16", shape.rows, matrix.groups));
    }
    let warps = columns / 256;
    let config = cuda_std::launch::LaunchConfig::new(blocks.clamp(1, matrix.groups), 32 * warps)
        .shared(2 * Meeting::bytes(warps))
        .pdl(true);
    Ok(decode_head::prepare(config, residual, logits, best, matrix, shape))
}
