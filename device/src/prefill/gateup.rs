//! Gate and up of every expert for its own tokens: `h[place] = silu(G_e n) ∘ (U_e n)`, n the normed activation of the
//! token at `place`.
//!
//! `x` are the [`Record`]s and factors of all tokens; places are those of [`group`](super::route::group); `h` is
//! `[place][ff]` f32.
//!
//! **Bytes**: gate and up of all experts that have tokens, once for every 32 of them. **Shape of the work**: a warp for 16
//! rows of both matrices × 32 tokens; blocks over rows, experts and, where an expert has many, its tokens.
//!
//! **Launch**: [`gateup`].

use super::product::{Product, Sums, TOKENS, Tokens, ZERO, row_group, with_tokens};
use super::record::Record;
use crate::decode::gateup::ExpertShape;
use crate::decode::rows::{Matrix, with_tile};
use cuda_std::prelude::*;

/// Warps of a block.
pub(super) const WARPS: u32 = 8;
/// Blocks that share the tokens of one expert.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const SHARES: u32 = 4;

/// Gate and up.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Pair {
    /// Gate of expert 0; `groups` are those of one expert.
    pub gate: Matrix,
    /// Up of expert 0, of the same type and shape.
    pub up: Matrix,
}

/// Row group `group` of both matrices times the tokens.
#[inline(always)]
unsafe fn both<T: Product, const NT: usize>(
    w: &Pair,
    group: u32,
    blocks: u32,
    tokens: &Tokens,
    lane: u32,
) -> (Sums, Sums) {
    let at = group as usize * blocks as usize * T::BYTES;
    let (mut gate, mut sums, mut turn) = (ZERO, ZERO, 0);
    // A loop, so that the product is compiled once.
    while turn < 2 {
        gate = sums;
        let matrix = if turn == 0 { w.gate } else { w.up };
        // SAFETY: the caller's: both matrices have the row group.
        sums = unsafe { row_group::<T, NT>(matrix.tiles.as_ptr().add(at), blocks, tokens, lane) };
        turn += 1;
    }
    (gate, sums)
}

/// Gate and up of every expert for its tokens, with SwiGLU.
///
/// Prepare it with [`gateup`].
///
/// # Safety
/// The arguments of a launch that [`gateup`] prepared.
#[kernel(pdl)]
pub unsafe fn prefill_gateup(
    x: *const u8,
    factors: *const F32x2,
    order: *const u32,
    starts: *const u32,
    h: *mut f32,
    weights: Pair,
    shape: ExpertShape,
) {
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let (group, expert) = (thread::block_idx_x() * WARPS + warp, thread::block_idx_y());
    pdl::wait();
    if group >= weights.gate.groups {
        return;
    }
    let (blocks, row_bytes) = (shape.columns / 256, Record::row_bytes(shape.columns));
    // SAFETY: the launch has warps for the row groups and blocks for the experts; places are below the last start.
    unsafe {
        let end = global::load(starts.add(expert as usize + 1));
        let mut first = global::load(starts.add(expert as usize)) + thread::block_idx_z() * TOKENS;
        while first < end {
            let count = end - first;
            let token = |n: u32| global::load(order.add((first + if n < count { n } else { 0 }) as usize));
            let tokens = Tokens::new(x, row_bytes, lane, token);
            let row = expert * weights.gate.groups + group;
            let (gate, up) = with_tile!(weights.gate.kind, T =>
                with_tokens!(count, NT => both::<T, NT>(&weights, row, blocks, &tokens, lane)));
            store(&gate, &up, count, lane, |n, row, gate, up| {
                let F32x2([factor, _]) = global::load(factors.add(token(n) as usize));
                let to = h.add((first + n) as usize * shape.ff as usize + (16 * group + row) as usize);
                global::store(to, float::silu(gate * factor) * (up * factor));
            });
            first += TOKENS * thread::grid_dim_z();
        }
    }
}

/// Calls `f(token, row, gate, up)` for the lane's sums.
#[inline(always)]
fn store(gate: &Sums, up: &Sums, count: u32, lane: u32, mut f: impl FnMut(u32, u32, f32, f32)) {
    let (g, t) = (lane >> 2, lane & 3);
    unroll!(for I in 0..16 {
        let token = 8 * (I as u32 / 4) + 2 * t + I as u32 % 2;
        if token < count {
            f(token, g + 8 * (I as u32 % 4 / 2), gate[I / 4][I % 4], up[I / 4][I % 4]);
        }
    });
}

/// The launch for `shape`; `x` and `factors` of the tokens, `order` and `starts` of their places, `h` of `shape.ff`
/// floats a place.
///
/// # Errors
/// A shape outside the limits that [`ExpertShape`] names, or gate and up of different types or sizes.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gateup(
    x: DevicePtr<u8>,
    factors: DevicePtr<F32x2>,
    order: DevicePtr<u32>,
    starts: DevicePtr<u32>,
    h: DevicePtr<f32>,
    weights: Pair,
    shape: ExpertShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    crate::shape::multiple("prefill_gateup", shape.columns as usize, 256)?;
    let ff = crate::shape::multiple("prefill_gateup", shape.ff as usize, 256)?;
    crate::decode::topk::check("prefill_gateup", shape.experts, shape.used)?;
    let Pair { gate, up } = weights;
    if gate.kind != up.kind || gate.groups != ff / 16 || up.groups != ff / 16 {
        let rule = format!(
            "gate and up of {} and {} rows and kinds {} and {}; the shape says {ff} rows, of one type",
            16 * gate.groups,
            16 * up.groups,
            gate.kind,
            up.kind
        );
        return Err(crate::shape::ShapeError::new("prefill_gateup", rule));
    }
    let grid = [gate.groups.div_ceil(WARPS), shape.experts, SHARES];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * WARPS, 1, 1]);
    Ok(prefill_gateup::prepare(
        config, x, factors, order, starts, h, weights, shape,
    ))
}
