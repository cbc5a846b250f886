//! The chosen experts' gate and up projections: `h[j] = silu(G_e n) ∘ (U_e n)` for rank j, with e the expert of that
//! rank and `n = rms(x) ∘ g`.
//!
//! `logits` are the router's; gate and up lie in tiles, expert after expert; `h` is `[rank][ff]` f32.
//!
//! **Bytes**: `2 · used · ff · columns` weights.
//!
//! **Shape of the work**: a block for every 16 rows of every chosen expert, a warp for every 256 columns of both
//! matrices. Which weights is known only behind the wait, so each warp first finds its expert
//! ([`topk`]), then has both tiles on their way while it fetches and splits its activations.
//!
//! **The fence of a layer**: this kernel waits first and lets its successor start only then. Whatever runs before the wait
//! of a later launch may therefore read what launches before this one wrote: `down` the router's logits, attention the
//! cache and the position. Every other kernel of a step triggers before it waits and promises nothing of the kind.
//!
//! **Launch**: [`topk_gateup`].

use super::{
    ahead::Ahead,
    meeting::Meeting,
    rows::{Matrix, Place, activation},
    topk,
};
use crate::tile::{Activation, Q4KTile, Q6KTile, Tile};
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

/// Gate and up of all experts, and `down` of all experts, which a launch brings into L2 for the next one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct GateUp {
    /// Gate of expert 0; `groups` are those of one expert.
    pub gate: Matrix,
    /// Up of expert 0, of the same type and shape.
    pub up: Matrix,
    /// `down` of expert 0, `bytes` being those of one expert; none to bring nothing.
    pub down: Ahead,
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
            x: *const f32,
            gain: *const f32,
            logits: *const f32,
            h: *mut f32,
            weights: GateUp,
            shape: ExpertShape,
        ) {
            // SAFETY: passed on.
            unsafe { chosen_rows::<$tile>(x, gain, logits, h, weights, shape) }
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
unsafe fn chosen_rows<T: Tile>(
    x: *const f32,
    gain: *const f32,
    logits: *const f32,
    h: *mut f32,
    weights: GateUp,
    shape: ExpertShape,
) {
    let at = Place::new(shape.columns / 256);
    let (group, rank) = (thread::block_idx_x(), thread::block_idx_y());
    // SAFETY: the launch has a block for each row group and rank; the vectors are as long as the shape says.
    unsafe {
        pdl::wait();
        pdl::launch_dependents();
        let meetings = [
            Meeting::at(0, at.warps),
            Meeting::at(Meeting::bytes(at.warps), at.warps),
        ];
        let choice: Shared<u32> = shared::dynamic(2 * Meeting::bytes(at.warps), 1);
        // One warp chooses for all: eight would keep each other from issuing for longer than the barrier takes.
        if at.warp + 1 == at.warps {
            let chosen = topk::chosen::<false>(logits, shape.experts, rank, shape.used, at.lane);
            if at.lane == 0 {
                choice.store(0, chosen.expert);
            }
        }
        let (x, squares) = at.columns::<true>(x, gain, at.warp);
        meetings[0].put_squares(squares, at.warp, at.lane);
        let x = activation::<T>(&x, at.lane);
        thread::sync_threads();
        let expert = choice.load(0);
        both::<T>(at, &weights, expert * weights.gate.groups + group, &x, meetings);
        bring_down(&weights, expert);
        let per_column = float::rcp(shape.columns as f32);
        thread::sync_threads();
        if at.warp == 0 {
            let (gate, up) = (
                meetings[0].total(at.lane, at.warps),
                meetings[1].total(at.lane, at.warps),
            );
            let scale = meetings[0].inverse_rms(at.lane, at.warps, per_column, shape.eps);
            if at.lane < 16 {
                let row = rank * shape.ff + 16 * group + at.lane;
                global::store(h.add(row as usize), float::silu(gate * scale) * (up * scale));
            }
        }
    }
}

/// Row group `group` of gate and of up, times the warp's columns of the normed vector.
#[inline(always)]
unsafe fn both<T: Tile>(at: Place, w: &GateUp, group: u32, x: &Activation, meetings: [Meeting; 2]) {
    // SAFETY: the caller's: the row group exists in both matrices.
    unsafe {
        let g: T = at.tile(w.gate.tiles.as_ptr(), group, at.warp);
        let u: T = at.tile(w.up.tiles.as_ptr(), group, at.warp);
        // Both are on their way before anything waits: the assembler would move each load down to its product.
        warp::sync();
        let gate = g.multiply(g.scales(at.lane), x, at.lane);
        let up = u.multiply(u.scales(at.lane), x, at.lane);
        meetings[0].put(gate, at.warp, at.lane);
        meetings[1].put(up, at.warp, at.lane);
    }
}

/// Brings this block's share of the expert's `down` into L2.
#[inline(always)]
fn bring_down(weights: &GateUp, expert: u32) {
    let from = weights
        .down
        .from
        .byte_add(expert as usize * weights.down.bytes as usize);
    let down = Ahead {
        from,
        bytes: weights.down.bytes,
    };
    let threads = thread::block_dim_x();
    down.lines(
        thread::block_idx_x() * threads + thread::thread_idx_x(),
        threads * thread::grid_dim_x(),
    );
}

/// The launch for `shape`.
///
/// # Errors
/// A shape outside the limits that [`ExpertShape`] names, or gate and up of different types.
#[cfg(not(target_arch = "nvptx64"))]
pub fn topk_gateup(
    x: DevicePtr<f32>,
    gain: DevicePtr<f32>,
    logits: DevicePtr<f32>,
    h: DevicePtr<f32>,
    weights: GateUp,
    shape: ExpertShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let refuse = |rule| Err(crate::shape::ShapeError::new("decode_gateup", rule));
    let columns = crate::shape::multiple("decode_gateup", shape.columns as usize, 256)?;
    let ff = crate::shape::multiple("decode_gateup", shape.ff as usize, 256)?;
    topk::check("decode_gateup", shape.experts, shape.used)?;
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
    let config = cuda_std::launch::LaunchConfig::shaped([ff / 16, shape.used, 1], [32 * warps, 1, 1])
        .shared(2 * Meeting::bytes(warps) + 4)
        .pdl(true);
    let prepare = match weights.gate.kind {
        kind if kind == super::rows::TileKind::Q4K as u32 => decode_gateup_q4k::prepare,
        _ => decode_gateup_q6k::prepare,
    };
    Ok(prepare(config, x, gain, logits, h, weights, shape))
}
