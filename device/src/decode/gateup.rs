//! The chosen experts' gate and up projections: `h[j] = silu(G_e n) ∘ (U_e n)` for rank j, with e the expert of that
//! rank and `n = x ∘ g / rms(x)`.
//!
//! `routing` has the router's sums; gate and up lie in tiles, expert after expert; `h` is `[rank][ff]` f32.
//!
//! **Bytes**: `2 · used · ff · columns` weights.
//!
//! **Shape of the work**: a block for every 16 rows of every chosen expert, a warp for every 256 columns of both
//! matrices. Which weights is known only behind the wait, so one warp first finds the expert ([`topk`]); then the weights
//! are on their way while the activations become the product's operand.
//!
//! One block more leaves all [`Choices`](super::choices::Choices) for `down`.
//!
//! **The fence of a layer**: this kernel waits first and lets its successor start only then. Whatever runs before the wait
//! of a later launch may therefore read what launches before this one wrote: attention the
//! cache and the position. Every other kernel of a step triggers before it waits and promises nothing of the kind.
//!
//! **Launch**: [`topk_gateup`].

use super::{
    choices::MAX_USED,
    columns::Columns,
    marks::{Launch, Point},
    meeting::Meeting,
    residual::{Residual, Squares},
    router::Routing,
    rows::{Matrix, Place, activation},
    topk,
};
use crate::tile::{Q4KTile, Q6KTile, Tile};
use cuda_std::prelude::*;

/// Shape of a layer's experts, as the launches that use them take it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct ExpertShape {
    /// Experts of the layer: a multiple of 4, at most 256.
    pub experts: u32,
    /// Experts that a token uses.
    pub used: u32,
    /// Columns of gate and up, rows of down; a multiple of 256, at most 8,192.
    pub columns: u32,
    /// Rows of gate and up, columns of down; a multiple of 256.
    pub ff: u32,
    /// The norm's epsilon.
    pub eps: f32,
    /// Zero; keeps the size a multiple of 8.
    pub reserved: u32,
}

/// Gate and up of all experts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct GateUp {
    /// Gate of expert 0; `groups` are those of one expert.
    pub gate: Matrix,
    /// Up of expert 0, of the same type and shape.
    pub up: Matrix,
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $tile:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// Prepare it with [`topk_gateup`].
        ///
        /// # Safety
        /// The arguments of a launch that [`topk_gateup`] prepared.
        #[kernel(pdl)]
        pub unsafe fn $name(
            stream: Residual,
            h: *mut f32,
            routing: Routing,
            weights: GateUp,
            shape: ExpertShape,
        ) {
            // SAFETY: passed on.
            unsafe { rows::<$tile>(stream, h, routing, weights, shape) }
        }
    )*};
}

kernels! {
    /// Gate and up of the chosen experts in Q4_K, with router softmax, norm and SwiGLU.
    decode_gateup_q4k = Q4KTile;
    /// Gate and up of the chosen experts in Q6_K, with router softmax, norm and SwiGLU.
    decode_gateup_q6k = Q6KTile;
}

/// The kernels' body: the type is theirs, since the larger one would set the registers of both.
#[inline(always)]
unsafe fn rows<T: Tile>(stream: Residual, h: *mut f32, routing: Routing, weights: GateUp, shape: ExpertShape) {
    thread::touch(shape.experts);
    // SAFETY: the launch's; block 0 has no rows.
    unsafe {
        match thread::block_idx_x().checked_sub(1) {
            Some(unit) => chosen_rows::<T>(unit, stream, h, routing, weights, shape),
            None => tell::<T>(stream, routing, weights, shape),
        }
    }
}

/// One warp finds all experts and their weights, and tells them to `down`.
#[inline(always)]
unsafe fn tell<T: Tile>(stream: Residual, routing: Routing, weights: GateUp, shape: ExpertShape) {
    let lane = thread::thread_idx_x();
    pdl::wait();
    pdl::launch_dependents();
    if lane < 32 {
        let used = shape.used.min(MAX_USED);
        // SAFETY: the sums are complete, the stream is as long as the shape says, and no other block tells.
        unsafe {
            let squares = stream.squares(shape.columns, lane);
            let keys = |i| routing.keys(i);
            let scale = squares.inverse_rms(shape.columns, shape.eps);
            let all = topk::by_lane(keys, routing.experts, used, scale, lane);
            // What `down` sends for must not delay gate and up: a word from each end of them comes when most of them have.
            let groups = weights.up.groups;
            let expert = warp::shuffle(all.expert, lane % used.max(1));
            let tile = (expert * groups + lane * groups / 32) as usize * (shape.columns / 256) as usize;
            let word = global::load_once(weights.up.tiles.as_ptr().add(tile * T::BYTES).cast::<u32>());
            thread::touch(word);
            routing.choices.publish(all, used, lane);
        }
    }
}

/// The rows of unit `unit`.
#[inline(always)]
unsafe fn chosen_rows<T: Tile>(
    unit: u32,
    stream: Residual,
    h: *mut f32,
    routing: Routing,
    weights: GateUp,
    shape: ExpertShape,
) {
    let at = Place::new(shape.columns / 256);
    let groups = weights.gate.groups.max(1);
    let (rank, group) = (unit / groups, unit % groups);
    let meetings = [
        Meeting::at(0, at.warps),
        Meeting::at(Meeting::bytes(at.warps), at.warps),
    ];
    let choice: Shared<u32> = shared::dynamic(2 * Meeting::bytes(at.warps), 1);
    // SAFETY: the launch has a block for each row group and rank; the vectors are as long as the shape says.
    unsafe {
        Launch::GateUp.is_at(Point::Start);
        pdl::wait();
        pdl::launch_dependents();
        Launch::GateUp.is_at(Point::Waited);
        let columns = at.columns(stream.gained.as_ptr(), at.warp);
        let squares = if at.warp == 0 {
            stream.squares(shape.columns, at.lane)
        } else {
            Squares::NONE
        };
        // One warp chooses for all, which have nothing to do yet: eight would keep each other from issuing.
        if at.warp == 0 {
            let chosen = topk::chosen::<false>(|i| routing.keys(i), routing.experts, rank, shape.used, at.lane);
            if at.lane == 0 {
                choice.store(0, chosen.expert);
            }
        }
        thread::sync_threads();
        let expert = choice.load(0);
        Launch::GateUp.is_at(Point::Input);
        both::<T>(at, &weights, expert * weights.gate.groups + group, &columns, meetings);
        let scale = if at.warp == 0 {
            squares.inverse_rms(shape.columns, shape.eps)
        } else {
            0.0
        };
        thread::sync_threads();
        Launch::GateUp.is_at(Point::Met);
        if at.warp == 0 {
            let (gate, up) = (
                meetings[0].total_at_once::<4>(at.lane, at.warps),
                meetings[1].total_at_once::<4>(at.lane, at.warps),
            );
            if at.lane < 16 {
                let row = rank * shape.ff + 16 * group + at.lane;
                global::store(h.add(row as usize), float::silu_approx(gate * scale) * (up * scale));
            }
            Launch::GateUp.is_at(Point::End);
        }
    }
}

/// Row group `group` of gate and of up, times the warp's columns, which become the product's operand while the weights are
/// on their way.
#[inline(always)]
pub(super) unsafe fn both<T: Tile>(at: Place, w: &GateUp, group: u32, x: &Columns, meetings: [Meeting; 2]) {
    // SAFETY: the caller's: the row group exists in both matrices.
    unsafe {
        // Under way before anything waits: the assembler would move each load down to its product. Not all at once: what
        // comes first keeps the first product busy while the rest comes.
        let gate: T = at.tile(w.gate.tiles.as_ptr(), group, at.warp);
        warp::sync();
        let x = activation::<T>(x, at.lane);
        let up: T = at.tile(w.up.tiles.as_ptr(), group, at.warp);
        warp::sync();
        meetings[0].put(gate.multiply(gate.scales(at.lane), &x, at.lane), at.warp, at.lane);
        meetings[1].put(up.multiply(up.scales(at.lane), &x, at.lane), at.warp, at.lane);
    }
}

/// The launch for `shape`.
///
/// # Errors
/// A shape outside the limits that [`ExpertShape`] names, or gate and up of different types.
#[cfg(not(target_arch = "nvptx64"))]
pub fn topk_gateup(
    stream: Residual,
    h: DevicePtr<f32>,
    routing: Routing,
    weights: GateUp,
    shape: ExpertShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let refuse = |rule| Err(crate::shape::ShapeError::new("decode_gateup", rule));
    let columns = crate::shape::multiple("decode_gateup", shape.columns as usize, 256)?;
    let ff = crate::shape::multiple("decode_gateup", shape.ff as usize, 256)?;
    topk::check("decode_gateup", shape.experts, shape.used)?;
    if routing.experts != shape.experts {
        return refuse(format!(
            "routing of {} experts; the shape says {}",
            routing.experts, shape.experts
        ));
    }
    if weights.gate.kind != weights.up.kind {
        return refuse("gate and up of different types; it takes one type".to_owned());
    }
    if weights.gate.groups != ff / 16 || weights.up.groups != ff / 16 {
        return refuse(format!(
            "gate of {} and up of {} rows; the shape says {ff}",
            16 * weights.gate.groups,
            16 * weights.up.groups
        ));
    }
    let warps = columns / 256;
    if warps > 32 {
        return refuse(format!("{columns} columns; it takes up to 8192"));
    }
    let config = cuda_std::launch::LaunchConfig::new(1 + ff / 16 * shape.used, 32 * warps)
        .shared(2 * Meeting::bytes(warps) + 4)
        .pdl(true);
    let prepare = match weights.gate.kind {
        kind if kind == super::rows::TileKind::Q4K as u32 => decode_gateup_q4k::prepare,
        _ => decode_gateup_q6k::prepare,
    };
    Ok(prepare(config, stream, h, routing, weights, shape))
}
