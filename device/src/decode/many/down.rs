//! Down of the experts that several sequences chose, onto their streams: [`down`](crate::decode::down) for each.
//!
//! `h` is `[sequence][rank][ff]`, a sequence has its own [`Choices`].
//!
//! **Bytes**: `used · ff · columns` weights for each sequence; those that others want too come from L2. **Shape of the
//! work**: a block for every 16 rows of every sequence, those of one row group side by side; its warps share the tiles of
//! all ranks, in the order of rank, which are on the way to shared memory before the wait.
//!
//! **Launch**: [`down`].

use super::Streams;
use crate::decode::choices::{Choices, MAX_USED};
use crate::decode::down::{choices_at, stage_at};
use crate::decode::gateup::ExpertShape;
use crate::decode::meeting::Meeting;
use crate::decode::rows::{Matrix, Place, activation};
use crate::decode::topk;
use crate::tile::{Q4KTile, Q6KTile, Stages, Tile};
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $tile:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// Prepare it with [`down`].
        ///
        /// # Safety
        /// The arguments of a launch that [`down`] prepared.
        #[kernel(pdl, registers = 80)]
        pub unsafe fn $name(
            h: *const f32,
            words: DevicePtr<u64>,
            streams: Streams,
            gain: *const f32,
            down: Matrix,
            shape: ExpertShape,
            share: u32,
        ) {
            // SAFETY: passed on.
            unsafe { weighted_rows::<$tile>(h, words, streams, gain, down, shape, share) }
        }
    )*};
}

kernels! {
    /// Weighted down projections of the experts that several sequences chose, in Q4_K.
    many_down_q4k = Q4KTile;
    /// Weighted down projections of the experts that several sequences chose, in Q6_K.
    many_down_q6k = Q6KTile;
}

/// The kernels' body; a warp takes `share` tiles.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn weighted_rows<T: Tile>(
    h: *const f32,
    words: DevicePtr<u64>,
    streams: Streams,
    gain: *const f32,
    down: Matrix,
    shape: ExpertShape,
    share: u32,
) {
    thread::touch(share);
    let at = Place::new(shape.ff / 256);
    let (sequence, group) = (thread::block_idx_x(), thread::block_idx_y());
    let stream = streams.of(shape.columns, sequence);
    let h = h.wrapping_add((sequence * shape.used * shape.ff) as usize);
    let meeting = Meeting::at(0, at.warps);
    let choices: Shared<U32x2> = shared::dynamic(choices_at(at.warps), shape.used);
    let bytes = at.blocks * T::BYTES as u32;
    let stages = Stages {
        first: stage_at(at.warps, shape.used),
        bytes,
    };
    // SAFETY: the launch has a block for each sequence and row group; the vectors are as long as the shape says.
    unsafe {
        if at.warp == 0 {
            let words = Choices::new(words.add((sequence * MAX_USED) as usize));
            let chosen = words.find(shape.used, at.lane);
            if at.lane < shape.used {
                choices.store(at.lane, U32x2([chosen.expert, chosen.weight.to_bits()]));
                stages.of(at.lane).expect(bytes);
            }
        }
        thread::sync_threads();
        let mut rank = 0;
        while rank < shape.used {
            stages.of(rank).copy(1, bytes, |_| {
                let row_group = choices.load(rank).0[0] * down.groups + group;
                down.tiles.as_ptr().add(row_group as usize * bytes as usize)
            });
            rank = rolled(rank + 1);
        }
        let row = (16 * group + (at.lane & 15)) as usize;
        let gain = if at.warp == 0 { global::load(gain.add(row)) } else { 0.0 };
        pdl::launch_dependents();
        pdl::wait();
        let x = if at.warp == 0 {
            global::load(stream.x.as_ptr().add(row))
        } else {
            0.0
        };
        let part = products::<T>(at, h, at.warp * share, share, choices, stages);
        meeting.put(part, at.warp, at.lane);
        thread::sync_threads();
        if at.warp == 0 {
            let x = x + meeting.total(at.lane, at.warps);
            streams.store((shape.columns, sequence), group, at.lane, x, gain);
        }
    }
}

/// Tiles `first` … `first + count` of all ranks times their columns of `h`, weighted. All lanes of the warp call this
/// together.
///
/// # Safety
/// `h` has 256 columns for every tile.
#[inline(always)]
unsafe fn products<T: Tile>(
    at: Place,
    h: *const f32,
    first: u32,
    count: u32,
    choices: Shared<U32x2>,
    stages: Stages,
) -> [f32; 2] {
    let end = first + count;
    let (mut tile, mut rows) = (first, [0.0; 2]);
    let (mut rank, mut block) = (first / at.blocks.max(1), first % at.blocks.max(1));
    // SAFETY: the caller's.
    let mut columns = unsafe { at.columns(h, first) };
    loop {
        let x = activation::<T>(&columns, at.lane);
        let weight = f32::from_bits(choices.load(rank).0[1]);
        tile = rolled(tile + 1);
        if tile < end {
            // SAFETY: the caller's.
            columns = unsafe { at.columns(h, tile) };
        }
        let stage = stages.of(rank);
        stage.wait();
        let weights: T = stage.tile(block, at.lane);
        let part = weights.multiply(weights.scales(at.lane), &x, at.lane);
        rows = [
            float::fma(part[0], weight, rows[0]),
            float::fma(part[1], weight, rows[1]),
        ];
        if tile >= end {
            return rows;
        }
        (rank, block) = if block + 1 == at.blocks {
            (rank + 1, 0)
        } else {
            (rank, block + 1)
        };
    }
}

/// Warps of a block at most: so few that a multiprocessor has room for two blocks, one of which loads while the other one
/// multiplies.
#[cfg(not(target_arch = "nvptx64"))]
const MOST_WARPS: u32 = 12;

/// The launch for `shape` and `sequences` sequences; `down` is expert 0's, its groups those of one expert; `gain` has a
/// float for each row; `words` are those of the [`Choices`], [`MAX_USED`] a sequence.
///
/// # Errors
/// A shape outside the limits that [`ExpertShape`] names, more than 32 experts a token, or sequences that a step does not
/// take.
#[cfg(not(target_arch = "nvptx64"))]
pub fn down(
    h: DevicePtr<f32>,
    words: DevicePtr<u64>,
    streams: Streams,
    gain: DevicePtr<f32>,
    down: Matrix,
    shape: ExpertShape,
    sequences: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let refuse = |rule| Err(crate::shape::ShapeError::new("many_down", rule));
    let ff = crate::shape::multiple("many_down", shape.ff as usize, 256)?;
    let sequences = super::check("many_down", sequences)?;
    topk::check("many_down", shape.experts, shape.used)?;
    if shape.used > MAX_USED {
        return refuse(format!("{} experts a token; it takes up to {MAX_USED}", shape.used));
    }
    if down.groups * 16 != shape.columns {
        let rows = 16 * down.groups;
        return refuse(format!("down of {rows} rows; the shape says {}", shape.columns));
    }
    let tiles = shape.used * (ff / 256);
    let warps = crate::decode::rows::warps_for(256 * tiles, MOST_WARPS);
    let largest = crate::decode::rows::largest_tile([down.kind]);
    let grid = [sequences, down.groups, 1];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * warps, 1, 1])
        .shared(stage_at(warps, shape.used) + Stages::room(shape.used, ff / 256 * largest))
        .pdl(true);
    let prepare = match crate::decode::rows::TileKind::of(down.kind) {
        crate::decode::rows::TileKind::Q4K => many_down_q4k::prepare,
        crate::decode::rows::TileKind::Q6K => many_down_q6k::prepare,
    };
    let share = tiles / warps;
    Ok(prepare(config, h, words, streams, gain, down, shape, share))
}
