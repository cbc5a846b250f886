//! The language model head for several sequences: [`head`](crate::decode::head) for each.
//!
//! The logits of sequence s begin at `s · stride`; `best[s][block]` is the block's highest logit of sequence s and its row,
//! the lowest row among equals; NaN never wins. [`advance`](super::advance) finds the best of the blocks.
//!
//! **Bytes**: the matrix, once, past L1. **Shape of the work**: blocks stride over groups of 16 rows, a warp for every 256
//! columns, sequence after sequence; activations become operands once a block and wait in shared memory. The next tile
//! is on its way while a tile is multiplied.
//!
//! **Launch**: [`head`].

use super::rows::squares;
use super::stream_of;
use crate::decode::head::{Best, HeadShape, capped};
use crate::decode::meeting::Meeting;
use crate::decode::residual::Residual;
use crate::decode::rows::{Matrix, Place, activation, with_tile};
use crate::tile::{Activation, Tile};
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// A warp's operand in shared memory: the words of all lanes, the sums of columns, the scale.
#[derive(Clone, Copy)]
struct Kept(u32);

impl Kept {
    const BYTES: u32 = 512 + 32 + 16;

    /// Keeps `x`; a warp's own lanes may load it behind a warp barrier.
    #[inline(always)]
    fn store(self, x: &Activation, lane: u32) {
        shared::dynamic(self.0, 32).store(lane, U32x4(x.words));
        if lane < 4 {
            shared::dynamic(self.0 + 512, 4).store(lane, U32x2(x.sums.map(|sum| sum as u32)));
        }
        if lane == 0 {
            shared::dynamic(self.0 + 544, 1).store(0, x.scale);
        }
    }

    #[inline(always)]
    fn load(self, lane: u32) -> Activation {
        let U32x4(words) = shared::dynamic(self.0, 32).load(lane);
        let U32x2(sums) = shared::dynamic(self.0 + 512, 4).load(lane & 3);
        Activation {
            words,
            sums: sums.map(|sum| sum as i32),
            scale: shared::dynamic(self.0 + 544, 1).load(0),
            fine: [0; 4],
        }
    }
}

/// A block's shared memory.
#[derive(Clone, Copy)]
struct Room {
    warps: u32,
    sequences: u32,
}

impl Room {
    /// The operand of a warp and a sequence.
    #[inline(always)]
    fn kept(self, warp: u32, sequence: u32) -> Kept {
        Kept((sequence * self.warps + warp) * Kept::BYTES)
    }

    /// The end of the operands.
    #[inline(always)]
    const fn meetings(self) -> u32 {
        self.sequences * self.warps * Kept::BYTES
    }

    /// Where the sums of a sequence meet, in rounds of one parity.
    #[inline(always)]
    fn meeting(self, parity: u32, sequence: u32) -> Meeting {
        let number = parity * self.sequences + sequence;
        Meeting::at(self.meetings() + number * Meeting::bytes(self.warps), self.warps)
    }

    /// The end of the meetings.
    #[inline(always)]
    const fn bests(self) -> u32 {
        self.meetings() + 2 * self.sequences * Meeting::bytes(self.warps)
    }

    /// The best of each of 16 rows of a sequence.
    #[inline(always)]
    fn best(self, sequence: u32) -> Shared<U32x2> {
        shared::dynamic(self.bests() + sequence * 128, 16)
    }

    /// 1 / rms of each sequence.
    #[inline(always)]
    fn scales(self) -> Shared<f32> {
        shared::dynamic(self.bests() + self.sequences * 128, self.sequences)
    }

    /// Bytes of it.
    #[cfg(not(target_arch = "nvptx64"))]
    const fn bytes(self) -> u32 {
        self.bests() + self.sequences * 132
    }
}

/// Logits of several sequences and each block's best tokens, with the final norm folded in.
///
/// Prepare it with [`head`].
///
/// # Safety
/// The arguments of a launch that [`head`] prepared.
#[kernel(pdl)]
pub unsafe fn many_head(
    streams: Residual,
    logits: *mut f32,
    best: *mut Best,
    matrix: Matrix,
    shape: HeadShape,
    stride: u32,
    sequences: u32,
) {
    let at = Place::new(shape.columns / 256);
    let room = Room {
        warps: at.warps,
        sequences,
    };
    // SAFETY: no more blocks than row groups; the vectors are as long as the shape says.
    unsafe {
        with_tile!(matrix.kind, T => stream_rows::<T>(at, room, &matrix, streams, logits, &shape, stride));
        let mut sequence = at.warp;
        while sequence < sequences {
            let mine = if at.lane < 16 {
                load(room.best(sequence), at.lane)
            } else {
                Best::NONE
            };
            let mine = mine.of_warp();
            if at.lane == 0 {
                mine.store(best.add((sequence * thread::grid_dim_x() + thread::block_idx_x()) as usize));
            }
            sequence = rolled(sequence + at.warps);
        }
    }
}

/// An entry of the bests.
#[inline(always)]
fn load(bests: Shared<U32x2>, row: u32) -> Best {
    let U32x2([logit, token]) = bests.load(row);
    Best {
        logit: f32::from_bits(logit),
        token,
    }
}

/// The block's row groups, one after the other.
#[inline(always)]
unsafe fn stream_rows<T: Tile>(
    at: Place,
    room: Room,
    matrix: &Matrix,
    streams: Residual,
    logits: *mut f32,
    shape: &HeadShape,
    stride: u32,
) {
    let tiles = matrix.tiles.as_ptr();
    let (mut group, mut parity) = (thread::block_idx_x(), 0);
    // SAFETY: the caller's.
    unsafe {
        let mut tile: T = at.tile(tiles, group, at.warp);
        pdl::launch_dependents();
        pdl::wait();
        prepare_operands::<T>(at, room, streams, shape);
        while group < matrix.groups {
            let next = group + thread::grid_dim_x();
            // Behind the last one the last of all again: a choice between tiles would take them to memory.
            let after: T = at.tile(tiles, next.min(matrix.groups - 1), at.warp);
            // Under way before the products: the assembler would move the loads behind them.
            warp::sync();
            let mut sequence = 0;
            while sequence < room.sequences {
                let x = room.kept(at.warp, sequence).load(at.lane);
                let part = tile.multiply(tile.scales(at.lane), &x, at.lane);
                room.meeting(parity, sequence).put(part, at.warp, at.lane);
                sequence = rolled(sequence + 1);
            }
            thread::sync_threads();
            store_logits(at, room, parity, group, logits, shape, stride);
            tile = after;
            parity ^= 1;
            group = next;
        }
    }
}

/// The warp's operands of all sequences, and what the warp needs of the sequences whose sums it finishes.
#[inline(always)]
unsafe fn prepare_operands<T: Tile>(at: Place, room: Room, streams: Residual, shape: &HeadShape) {
    // SAFETY: the caller's.
    unsafe {
        let mut sequence = 0;
        while sequence < room.sequences {
            let stream = stream_of(streams, shape.columns, sequence);
            let columns = at.columns(stream.gained.as_ptr(), at.warp);
            room.kept(at.warp, sequence)
                .store(&activation::<T>(&columns, at.lane), at.lane);
            sequence = rolled(sequence + 1);
        }
        let mut sequence = at.warp;
        while sequence < room.sequences {
            let squared = squares(streams, shape.columns, sequence, room.sequences, at.lane);
            let scale = squared.inverse_rms(shape.columns, shape.eps);
            if at.lane == 0 {
                room.scales().store(sequence, scale);
            }
            if at.lane < 16 {
                let none = Best::NONE;
                room.best(sequence)
                    .store(at.lane, U32x2([none.logit.to_bits(), none.token]));
            }
            sequence = rolled(sequence + at.warps);
        }
    }
    warp::sync();
}

/// Stores the logits of 16 rows, a warp a sequence, and keeps the best of each row's place.
#[inline(always)]
unsafe fn store_logits(
    at: Place,
    room: Room,
    parity: u32,
    group: u32,
    logits: *mut f32,
    shape: &HeadShape,
    stride: u32,
) {
    let mut sequence = at.warp;
    while sequence < room.sequences {
        let sum = room.meeting(parity, sequence).total(at.lane, at.warps);
        let logit = capped(sum * room.scales().load(sequence), shape.softcap);
        let token = 16 * group + (at.lane & 15);
        if at.lane < 16 && token < shape.rows {
            let bests = room.best(sequence);
            let best = load(bests, at.lane).or(Best { logit, token });
            bests.store(at.lane, U32x2([best.logit.to_bits(), best.token]));
            // SAFETY: the caller's: a row of logits for each sequence.
            unsafe { global::store(logits.add(sequence as usize * stride as usize + token as usize), logit) };
        }
        sequence = rolled(sequence + at.warps);
    }
}

/// The launch for `shape` and `sequences` sequences on `blocks` blocks at most; rows of logits are `stride` floats apart,
/// `best` has an entry for each sequence and block. At most 4,096 columns.
///
/// # Errors
/// Columns that are no multiple of 256 or too many, a matrix with fewer rows than the shape, or sequences that a step does
/// not take.
#[cfg(not(target_arch = "nvptx64"))]
pub fn head(
    streams: Residual,
    (logits, stride): (DevicePtr<f32>, u32),
    best: DevicePtr<Best>,
    matrix: Matrix,
    shape: HeadShape,
    blocks: u32,
    sequences: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let refuse = |rule| Err(crate::shape::ShapeError::new("many_head", rule));
    let columns = crate::shape::multiple("many_head", shape.columns as usize, 256)?;
    let sequences = super::check("many_head", sequences)?;
    if columns > 4096 {
        return refuse(format!("{columns} columns; it takes up to 4096"));
    }
    if shape.rows == 0 || shape.rows.div_ceil(16) != matrix.groups || stride < shape.rows {
        return refuse(format!(
            "{} rows in {} groups of 16, {stride} apart",
            shape.rows, matrix.groups
        ));
    }
    let warps = columns / 256;
    let config = cuda_std::launch::LaunchConfig::new(blocks.clamp(1, matrix.groups), 32 * warps)
        .shared(Room { warps, sequences }.bytes())
        .pdl(true);
    Ok(many_head::prepare(
        config, streams, logits, best, matrix, shape, stride, sequences,
    ))
}
