//! The chosen experts' down projections, weighted and added to the residual stream:
//! `x += Σ_j w_j · D_{e_j} h[j]`.
//!
//! `h` is `[rank][ff]` f32, the matrices lie in tiles, expert after expert; `gain` are the gains
//! of the norm that comes next ([`Residual`]).
//!
//! **Bytes**: `used · ff · columns` weights.
//!
//! **Shape of the work**: a block for every 16 rows; its warps share ranks and 256-column blocks, rank by rank (24 warps for 8
//! experts of 768), so that the sum over experts needs neither atomics nor a second launch, and runs in the order of rank.
//! Which experts, [`Choices`] tells before the wait, so that all tiles are on their way to shared memory, and a warp waits
//! only for its own rank's: memory still brings the last ones when the first ones are multiplied.
//!
//! **Launch**: [`down_residual`].

#[cfg(not(target_arch = "nvptx64"))]
use super::rows::{TileKind, largest_tile};
use super::{
    choices::{Choices, MAX_USED},
    columns::Columns,
    gateup::ExpertShape,
    marks::{Launch, Point},
    meeting::Meeting,
    residual::Residual,
    rows::{Matrix, Place, activation},
    topk,
};
use crate::tile::{Q4KTile, Q6KTile, Stages, Tile};
use cuda_std::prelude::*;
use cuda_std::unroll::{rolled, stepped};

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $tile:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// Prepare it with [`down_residual`].
        ///
        /// # Safety
        /// The arguments of a launch that [`down_residual`] prepared.
        #[kernel(pdl, registers = 64)]
        pub unsafe fn $name(
            h: *const f32,
            choices: Choices,
            stream: Residual,
            gain: *const f32,
            down: Matrix,
            shape: ExpertShape,
            share: u32,
        ) {
            // SAFETY: passed on.
            unsafe { weighted_rows::<$tile>(h, choices, stream, gain, down, shape, share) }
        }
    )*};
}

kernels! {
    /// Weighted down projections of the chosen experts in Q4_K, onto the residual stream.
    decode_down_q4k = Q4KTile;
    /// Weighted down projections of the chosen experts in Q6_K, onto the residual stream.
    decode_down_q6k = Q6KTile;
}

/// The kernels' body; a warp takes `share` tiles.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn weighted_rows<T: Tile>(
    h: *const f32,
    words: Choices,
    stream: Residual,
    gain: *const f32,
    down: Matrix,
    shape: ExpertShape,
    share: u32,
) {
    thread::touch(share);
    let at = Place::new(shape.ff / 256);
    let meeting = Meeting::at(0, at.warps);
    let choices: Shared<U32x2> = shared::dynamic(choices_at(at.warps), shape.used);
    let group = thread::block_idx_x();
    let bytes = at.blocks * T::BYTES as u32;
    let stages = Stages {
        first: stage_at(at.warps, shape.used),
        bytes,
    };
    // SAFETY: the launch has a block for each row group; the vectors are as long as the shape says.
    unsafe {
        Launch::Down.is_at(Point::Start);
        let row = (16 * group + (at.lane & 15)) as usize;
        // What only one warp needs, and only in the end, waits in shared memory, not in registers of all. The stream was
        // complete before the launch that this one waits for let it start; behind the weights it would come last.
        let aside: Shared<f32> = shared::dynamic(aside_at(at.warps, shape.used, bytes), 64);
        if at.warp == 0 {
            copy::async_4(aside.address_of(at.lane), gain.add(row).cast());
            copy::async_4(aside.address_of(32 + at.lane), stream.x.as_ptr().add(row).cast());
            copy::commit();
            let chosen = words.find(shape.used, at.lane);
            if at.lane < shape.used {
                choices.store(at.lane, U32x2([chosen.expert, chosen.weight.to_bits()]));
            }
        }
        // By another warp, while that one asks for the choices.
        if at.warp == at.warps - 1 && at.lane < shape.used {
            stages.of(at.lane).prepare();
        }
        thread::sync_threads();
        stages.copy(shape.used, |rank| {
            let row_group = choices.load(rank).0[0] * down.groups + group;
            down.tiles.as_ptr().add(row_group as usize * bytes as usize)
        });
        let share = Share {
            first: at.warp * share,
            count: share,
        };
        let place = share.place(at, 0);
        Launch::Down.is_at(Point::Ready);
        pdl::launch_dependents();
        pdl::wait();
        Launch::Down.is_at(Point::Waited);
        let columns = at.columns(h, share.first);
        meeting.put(
            share.products::<T>(at, place, h, columns, choices, stages),
            at.warp,
            at.lane,
        );
        thread::sync_threads();
        Launch::Down.is_at(Point::Met);
        // Not known to be the condition above: the compiler would write the products twice, and code that runs once is
        // slow to fetch.
        if rolled(at.warp) == 0 {
            copy::wait::<0>();
            let x = aside.load(32 + at.lane) + meeting.total_at_once::<12>(at.lane, at.warps);
            stream.store(group, at.lane, x, aside.load(at.lane));
            Launch::Down.is_at(Point::End);
        }
    }
}

/// The tiles of a warp among those of all ranks: neighbours, in the order of rank.
#[derive(Clone, Copy)]
struct Share {
    first: u32,
    count: u32,
}

impl Share {
    /// Rank and column block of tile `i`.
    #[inline(always)]
    fn place(self, at: Place, i: u32) -> (u32, u32) {
        let (tile, blocks) = (self.first + i, at.blocks.max(1));
        (tile / blocks, tile % blocks)
    }

    /// Their products with `h`, weighted; `columns` are those of the first, which is at `place`. All lanes of the warp call
    /// this together.
    ///
    /// What is made again for each tile and not kept leaves registers to the products.
    ///
    /// # Safety
    /// `h` has 256 columns for every tile.
    #[inline(always)]
    unsafe fn products<T: Tile>(
        self,
        at: Place,
        mut place: (u32, u32),
        h: *const f32,
        mut columns: Columns,
        choices: Shared<U32x2>,
        stages: Stages,
    ) -> [f32; 2] {
        let (mut i, mut rows) = (0, [0.0; 2]);
        loop {
            let at = Place {
                lane: rolled(at.lane),
                ..at
            };
            let x = activation::<T>(&columns, at.lane);
            let weight = f32::from_bits(choices.load(place.0).0[1]);
            let stage = stages.of(place.0);
            Launch::Down.is_at(Point::Input);
            stage.wait();
            Launch::Down.is_at(Point::Weights);
            let weights: T = stage.tile(place.1, at.lane);
            let part = weights.multiply(weights.scales(at.lane), &x, at.lane);
            rows = [
                float::fma(part[0], weight, rows[0]),
                float::fma(part[1], weight, rows[1]),
            ];
            i = stepped(i + 1);
            if i >= self.count {
                return rows;
            }
            // SAFETY: the caller's.
            columns = unsafe { at.columns(h, self.first + i) };
            place = self.place(at, i);
        }
    }
}

/// Where the chosen experts lie in shared memory.
#[inline(always)]
pub(super) const fn choices_at(warps: u32) -> u32 {
    Meeting::bytes(warps).next_multiple_of(8)
}

/// Where the stage lies.
#[inline(always)]
pub(super) const fn stage_at(warps: u32, used: u32) -> u32 {
    (choices_at(warps) + 8 * used).next_multiple_of(16)
}

/// Where 64 floats lie behind the stages.
#[inline(always)]
const fn aside_at(warps: u32, used: u32, bytes: u32) -> u32 {
    stage_at(warps, used) + Stages::room(used, bytes)
}

/// Warps of a block at most. A warp takes its tiles one behind the other, which costs more than the registers of 24.
#[cfg(not(target_arch = "nvptx64"))]
const MOST_WARPS: u32 = 24;

/// The launch for `shape`; `down` is expert 0's, its groups those of one expert; `gain` has a float for each row.
///
/// # Errors
/// A shape outside the limits that [`ExpertShape`] names, or more than 32 experts a token.
#[cfg(not(target_arch = "nvptx64"))]
pub fn down_residual(
    h: DevicePtr<f32>,
    choices: Choices,
    stream: Residual,
    gain: DevicePtr<f32>,
    down: Matrix,
    shape: ExpertShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let refuse = |rule| Err(crate::shape::ShapeError::new("decode_down", rule));
    let ff = crate::shape::multiple("decode_down", shape.ff as usize, 256)?;
    topk::check("decode_down", shape.experts, shape.used)?;
    if shape.used > MAX_USED {
        return refuse(format!("{} experts a token; it takes up to {MAX_USED}", shape.used));
    }
    if down.groups * 16 != shape.columns {
        return refuse(format!(
            "down of {} rows; the shape says {}",
            16 * down.groups,
            shape.columns
        ));
    }
    let tiles = shape.used * (ff / 256);
    let warps = super::rows::warps_for(256 * tiles, MOST_WARPS);
    let shared = aside_at(warps, shape.used, ff / 256 * largest_tile([down.kind])) + 64 * 4;
    let config = cuda_std::launch::LaunchConfig::new(down.groups, 32 * warps)
        .shared(shared)
        .pdl(true);
    let prepare = match TileKind::of(down.kind) {
        TileKind::Q4K => decode_down_q4k::prepare,
        TileKind::Q6K => decode_down_q6k::prepare,
    };
    Ok(prepare(config, h, choices, stream, gain, down, shape, tiles / warps))
}
