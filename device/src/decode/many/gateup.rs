//! Gate and up of the experts that several sequences chose: [`gateup`](crate::decode::gateup) for each.
//!
//! `logits` are `[sequence][expert]`, `h` is `[sequence][rank][ff]`, a sequence has its own [`Choices`].
//!
//! **Bytes**: `2 · ff · columns` weights for each expert that a sequence chose; those of an expert that others chose too
//! come from L2. **Shape of the work**: a block for every 16 rows of every sequence's chosen experts, those of one row
//! group side by side; a warp for every 256 columns of both matrices.
//!
//! This launch is the fence of a layer, as for one sequence: it waits before it lets its successor start.
//!
//! **Launch**: [`gateup`].

use super::Streams;
use crate::decode::choices::{Choices, MAX_USED};
use crate::decode::gateup::{ExpertShape, GateUp, both};
use crate::decode::meeting::Meeting;
use crate::decode::residual::Squares;
use crate::decode::rows::Place;
use crate::decode::topk;
use crate::tile::{Q4KTile, Q6KTile, Tile};
use cuda_std::prelude::*;

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $tile:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// Prepare it with [`gateup`].
        ///
        /// # Safety
        /// The arguments of a launch that [`gateup`] prepared.
        #[kernel(pdl)]
        pub unsafe fn $name(
            streams: Streams,
            logits: *const f32,
            h: *mut f32,
            words: DevicePtr<u64>,
            weights: GateUp,
            shape: ExpertShape,
        ) {
            // SAFETY: passed on.
            unsafe { chosen_rows::<$tile>(streams, logits, h, words, weights, shape) }
        }
    )*};
}

kernels! {
    /// Gate and up of the experts that several sequences chose, in Q4_K.
    many_gateup_q4k = Q4KTile;
    /// Gate and up of the experts that several sequences chose, in Q6_K.
    many_gateup_q6k = Q6KTile;
}

/// The kernels' body.
#[inline(always)]
unsafe fn chosen_rows<T: Tile>(
    streams: Streams,
    logits: *const f32,
    h: *mut f32,
    words: DevicePtr<u64>,
    weights: GateUp,
    shape: ExpertShape,
) {
    thread::touch(shape.experts);
    let at = Place::new(shape.columns / 256);
    let (rank, sequence, group) = (thread::block_idx_x(), thread::block_idx_y(), thread::block_idx_z());
    let stream = streams.of(shape.columns, sequence);
    let logits = logits.wrapping_add((sequence * shape.experts) as usize);
    let words = Choices::new(words.add((sequence * MAX_USED) as usize));
    let meetings = [
        Meeting::at(0, at.warps),
        Meeting::at(Meeting::bytes(at.warps), at.warps),
    ];
    let choice: Shared<u32> = shared::dynamic(2 * Meeting::bytes(at.warps), 1);
    // SAFETY: the launch has a block for each sequence, rank and row group; the vectors are as long as the shape says.
    unsafe {
        pdl::wait();
        pdl::launch_dependents();
        let columns = at.columns(stream.gained.as_ptr(), at.warp);
        let squares = if at.warp == 0 {
            stream.squares(shape.columns, at.lane)
        } else {
            Squares::NONE
        };
        let keys = |i| topk::keys(logits, shape.experts, i);
        if at.warp == 0 {
            // Told by the block that chose for the whole sequence, if it has: most blocks run behind it.
            let told = words.told(rank);
            let expert = if told == 0 {
                topk::chosen::<false>(keys, shape.experts, rank, shape.used, at.lane).expert
            } else {
                told - 1
            };
            if at.lane == 0 {
                choice.store(0, expert);
            }
        }
        if at.warp + 1 == at.warps && rank == 0 && group == 0 {
            let all = topk::by_lane(keys, shape.experts, shape.used, 1.0, at.lane);
            words.publish(all, shape.used, at.lane);
        }
        thread::sync_threads();
        let row_group = choice.load(0) * weights.gate.groups + group;
        both::<T>(at, &weights, row_group, &columns, meetings);
        let scale = if at.warp == 0 {
            squares.inverse_rms(shape.columns, shape.eps)
        } else {
            0.0
        };
        thread::sync_threads();
        if at.warp == 0 {
            let (gate, up) = (
                meetings[0].total(at.lane, at.warps),
                meetings[1].total(at.lane, at.warps),
            );
            if at.lane < 16 {
                let row = (sequence * shape.used + rank) * shape.ff + 16 * group + at.lane;
                global::store(h.add(row as usize), float::silu_approx(gate * scale) * (up * scale));
            }
        }
    }
}

/// The launch for `shape` and `sequences` sequences; `words` are those of the [`Choices`], [`MAX_USED`] a sequence.
///
/// # Errors
/// A shape outside the limits that [`ExpertShape`] names, more than 32 experts a token, gate and up of different types or
/// sizes, or sequences that a step does not take.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gateup(
    streams: Streams,
    logits: DevicePtr<f32>,
    h: DevicePtr<f32>,
    words: DevicePtr<u64>,
    weights: GateUp,
    shape: ExpertShape,
    sequences: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let refuse = |rule| Err(crate::shape::ShapeError::new("many_gateup", rule));
    let columns = crate::shape::multiple("many_gateup", shape.columns as usize, 256)?;
    let ff = crate::shape::multiple("many_gateup", shape.ff as usize, 256)?;
    let sequences = super::check("many_gateup", sequences)?;
    topk::check("many_gateup", shape.experts, shape.used)?;
    if shape.used > MAX_USED {
        return refuse(format!("{} experts a token; it takes up to {MAX_USED}", shape.used));
    }
    let GateUp { gate, up } = weights;
    if gate.kind != up.kind || gate.groups != ff / 16 || up.groups != ff / 16 {
        return refuse(format!(
            "gate and up of {} and {} rows and kinds {} and {}; the shape says {ff} rows, of one type",
            16 * gate.groups,
            16 * up.groups,
            gate.kind,
            up.kind
        ));
    }
    let warps = columns / 256;
    if warps > 32 {
        return refuse(format!("{columns} columns; it takes up to 8192"));
    }
    let grid = [shape.used, sequences, ff / 16];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * warps, 1, 1])
        .shared(2 * Meeting::bytes(warps) + 4)
        .pdl(true);
    let prepare = match gate.kind {
        kind if kind == crate::decode::rows::TileKind::Q4K as u32 => many_gateup_q4k::prepare,
        _ => many_gateup_q6k::prepare,
    };
    Ok(prepare(config, streams, logits, h, words, weights, shape))
}
