//! The language model head for several sequences: [`head`](crate::decode::head) for each.
//!
//! The logits of sequence s begin at `s · stride`; `best[s][block]` is the block's highest logit of sequence s and its row,
//! the lowest row among equals; NaN never wins. [`advance`](super::advance) finds the best of the blocks.
//!
//! **Bytes**: the matrix, once, past L1. **Shape of the work**: blocks stride over groups of 16 rows, a warp for every 256
//! columns, four sequences at a time; activations become operands once a block and wait in shared memory. A tile goes
//! through shared memory too, so that its registers are free for the next one, which is on its way meanwhile.
//!
//! **Launch**: [`head`].

use super::Streams;
use super::four::{Columns, Fourfold, Kept};
use super::rows::{put, squares};
use crate::decode::head::{Best, HeadShape, capped};
use crate::decode::meeting::Meeting;
use crate::decode::rows::{Matrix, Place, with_tile};
use crate::tile::{Q6KTile, Tile};
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// A tile's bytes on their way: the lane's share of vectors of 512.
#[derive(Clone, Copy)]
struct Raw([U32x4; 7]);

impl Raw {
    /// Vectors of 16 bytes of a tile.
    const fn vectors<T: Tile>() -> u32 {
        const { assert!(T::BYTES.is_multiple_of(16) && T::BYTES <= 7 * 512) };
        T::BYTES as u32 / 16
    }

    /// Sends for the tile at `tile`.
    ///
    /// # Safety
    /// There is one, 16-byte aligned.
    #[inline(always)]
    unsafe fn load<T: Tile>(tile: *const u8, lane: u32) -> Self {
        let mut raw = [U32x4([0; 4]); 7];
        unroll!(for I in 0..7 {
            let vector = 32 * I as u32 + lane;
            if vector < Self::vectors::<T>() {
                // SAFETY: the caller's.
                raw[I] = unsafe { global::load_once(tile.cast::<U32x4>().add(vector as usize)) };
            }
        });
        Self(raw)
    }

    /// Puts it into shared memory, where its warp finds it behind a warp barrier.
    #[inline(always)]
    fn store<T: Tile>(self, to: Shared<u8>, lane: u32) {
        unroll!(for I in 0..7 {
            let vector = 32 * I as u32 + lane;
            if vector < Self::vectors::<T>() {
                to.cast::<U32x4>().store(vector, self.0[I]);
            }
        });
    }
}

/// A block's shared memory.
#[derive(Clone, Copy)]
struct Room {
    warps: u32,
    sequences: u32,
}

impl Room {
    /// The operand of the warp and the four sequences from `first` on.
    #[inline(always)]
    fn kept(self, at: Place, first: u32) -> Kept {
        Kept::at((first / 4 * self.warps + at.warp) * Kept::BYTES, at.lane)
    }

    /// The end of the operands.
    #[inline(always)]
    const fn tiles(self) -> u32 {
        self.sequences.div_ceil(4) * self.warps * Kept::BYTES
    }

    /// The warp's tile.
    #[inline(always)]
    fn tile<T: Tile>(self, warp: u32) -> Shared<u8> {
        shared::dynamic(self.tiles() + warp * T::BYTES as u32, T::BYTES as u32)
    }

    /// The end of the tiles.
    #[inline(always)]
    const fn meetings(self) -> u32 {
        self.tiles() + self.warps * Q6KTile::BYTES as u32
    }

    /// Where the sums of a sequence meet, in rounds of one parity.
    #[inline(always)]
    fn sums(self, parity: u32, sequence: u32) -> u32 {
        let number = parity * self.sequences + sequence;
        self.meetings() + number * Meeting::bytes(self.warps)
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
#[kernel(pdl, registers = 128)]
pub unsafe fn many_head(
    streams: Streams,
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
unsafe fn stream_rows<T: Fourfold>(
    at: Place,
    room: Room,
    matrix: &Matrix,
    streams: Streams,
    logits: *mut f32,
    shape: &HeadShape,
    stride: u32,
) {
    let tiles = matrix.tiles.as_ptr();
    let (mut group, mut parity) = (thread::block_idx_x(), 0);
    // SAFETY: the caller's.
    unsafe {
        let of = |group: u32| tiles.add((group * at.blocks + at.warp) as usize * T::BYTES);
        pdl::launch_dependents();
        pdl::wait();
        // Before the first tile is sent for: there are no registers for both.
        prepare_operands(at, room, streams, shape);
        let mut raw = Raw::load::<T>(of(group), at.lane);
        let kept = room.tile::<T>(at.warp);
        while group < matrix.groups {
            raw.store::<T>(kept, at.lane);
            warp::sync();
            // Behind the last one the last of all again: a choice between tiles would take them to memory.
            let next = group + thread::grid_dim_x();
            raw = Raw::load::<T>(of(next.min(matrix.groups - 1)), at.lane);
            let mut first = 0;
            while first < room.sequences {
                let rows = T::load(kept, at.lane).times(&room.kept(at, first), at.lane);
                let sequence = first + (at.lane & 3);
                if sequence < room.sequences {
                    put(room.sums(parity, sequence), at, rows);
                }
                first = rolled(first + 4);
            }
            thread::sync_threads();
            store_logits(at, room, parity, group, logits, shape, stride);
            parity ^= 1;
            group = next;
        }
    }
}

/// The warp's operands of all sequences, and what the warp needs of the sequences whose sums it finishes.
#[inline(always)]
unsafe fn prepare_operands(at: Place, room: Room, streams: Streams, shape: &HeadShape) {
    // SAFETY: the caller's.
    unsafe {
        let mut first = 0;
        while first < room.sequences {
            let columns = |s: u32| {
                let sequence = (first + s).min(room.sequences - 1);
                let x = streams.of(shape.columns, sequence).gained.as_ptr();
                x.wrapping_add(256 * at.warp as usize)
            };
            room.kept(at, first).store(&Columns::new(columns, at.lane));
            first = rolled(first + 4);
        }
        let mut sequence = at.warp;
        while sequence < room.sequences {
            let squared = squares(&streams, shape.columns, sequence, room.sequences, at.lane);
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
        let sum = Meeting::at(room.sums(parity, sequence), at.warps).total(at.lane, at.warps);
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
    streams: Streams,
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
