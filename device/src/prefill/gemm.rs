//! Tiled matrices times a prompt's tokens: `out[token][row] = W x` for up to three matrices over the same rows of
//! activations, or `out += W x`.
//!
//! `x` are [`Record`]s of `columns` columns a token with their factors; the outputs of the matrices lie one behind the
//! other in a row, f32. Used for Q, K and V, and for the output projection onto the residual stream.
//!
//! **Bytes**: the matrices once for every 32 tokens, from L2 from the second time on. **Shape of the work**: a warp for
//! 16 rows × 32 tokens over all columns ([`row_group`]); the eight warps of a block share the tokens, whose records
//! they find in L1. No barrier and no shared memory.
//!
//! **Launch**: [`gemm`].

use super::product::{TOKENS, Tokens, each, row_group, with_tokens};
use super::record::Record;
use crate::decode::rows::{Matrix, with_tile};
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 8;

/// What a launch multiplies.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct GemmShape {
    /// The matrices; those that are not there have no groups.
    pub matrices: [Matrix; 3],
    /// Columns of each, a multiple of 256.
    pub columns: u32,
    /// Tokens.
    pub tokens: u32,
    /// 1: onto what is in the output; 0: over it.
    pub add: u32,
    /// Zero; keeps the size a multiple of 8.
    pub reserved: u32,
}

impl GemmShape {
    /// Groups of 16 rows of all matrices.
    #[inline(always)]
    fn groups(&self) -> u32 {
        self.matrices[0].groups + self.matrices[1].groups + self.matrices[2].groups
    }
}

/// The matrix that has row group `group` of all, and its index there.
#[inline(always)]
fn segment(matrices: &[Matrix; 3], group: u32) -> (Matrix, u32) {
    let [a, b, c] = *matrices;
    if group < a.groups {
        (a, group)
    } else if group < a.groups + b.groups {
        (b, group - a.groups)
    } else {
        (c, group - a.groups - b.groups)
    }
}

/// Up to three tiled matrices times a prompt's tokens.
///
/// Prepare it with [`gemm`].
///
/// # Safety
/// The arguments of a launch that [`gemm`] prepared.
#[kernel(pdl)]
pub unsafe fn prefill_gemm(x: *const u8, factors: *const F32x2, out: *mut f32, shape: GemmShape) {
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let (group, first) = (thread::block_idx_x() * WARPS + warp, thread::block_idx_y() * TOKENS);
    pdl::wait();
    if group >= shape.groups() {
        return;
    }
    let (matrix, row_in) = segment(&shape.matrices, group);
    let (blocks, count) = (shape.columns / 256, shape.tokens - first);
    let tokens = Tokens::new(x, Record::row_bytes(shape.columns), lane, |n| {
        first + if n < count { n } else { 0 }
    });
    // SAFETY: the launch has warps for the row groups and blocks for the tokens; memory is as long as the shape says.
    unsafe {
        let sums = with_tile!(matrix.kind, T => {
            let tiles = matrix.tiles.as_ptr().add((row_in as usize * blocks as usize) * <T as crate::tile::Tile>::BYTES);
            with_tokens!(count, NT => row_group::<T, NT>(tiles, blocks, &tokens, lane))
        });
        let stride = 16 * shape.groups() as usize;
        each(&sums, count, lane, |token, row, sum| {
            let token = (first + token) as usize;
            let F32x2([factor, _]) = global::load(factors.add(token));
            let to = out.add(token * stride + (16 * group + row) as usize);
            let before = if shape.add == 0 { 0.0 } else { global::load(to) };
            global::store(to, float::fma(sum, factor, before));
        });
    }
}

/// The launch for `shape`: `x` and `factors` from [`split`](super::split::split), `out` of as many floats a token as
/// the matrices have rows.
///
/// # Errors
/// Columns that are no multiple of 256, no rows, or no tokens.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gemm(
    x: DevicePtr<u8>,
    factors: DevicePtr<F32x2>,
    out: DevicePtr<f32>,
    shape: GemmShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    crate::shape::multiple("prefill_gemm", shape.columns as usize, 256)?;
    let tokens = crate::shape::count("prefill_gemm", "tokens", shape.tokens as usize)?;
    let groups = crate::shape::count("prefill_gemm", "row groups", shape.groups() as usize)?;
    let grid = [groups.div_ceil(WARPS), tokens.div_ceil(TOKENS), 1];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * WARPS, 1, 1]);
    Ok(prefill_gemm::prepare(config, x, factors, out, shape))
}
