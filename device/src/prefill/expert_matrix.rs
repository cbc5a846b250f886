//! A stack of tiled matrices of any [`Kind`], one an expert, times the tokens of each expert:
//! `out[place][first + row] = W_e x`.
//!
//! `x` are [`Record`]s of `columns` columns with their factors: of all tokens, which `order` tells for each place, or of the
//! places themselves. Places are those of [`group`](super::route::group); a row of the output has `stride` floats.
//!
//! **Bytes**: the matrices of all experts that have tokens, once for every 32 of them. **Shape of the work**: a warp for 16
//! rows × 32 tokens over all columns ([`row_group`]); blocks over rows, experts and, where an expert has many, its tokens.
//!
//! **Launch**: [`expert_product`].

use super::product::{Product, TOKENS, Tokens, each, row_group, token_at, with_tokens};
use super::record::Record;
#[cfg(not(target_arch = "nvptx64"))]
use crate::dense::Kind;
use crate::dense::Matrix;
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 8;
/// Blocks that share the tokens of one expert.
#[cfg(not(target_arch = "nvptx64"))]
const SHARES: u32 = 4;

/// What a launch multiplies, and where results go.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct ExpertProduct {
    /// The matrix of expert 0, its groups those of one expert; the others behind it.
    pub matrix: Matrix,
    /// Columns, a multiple of 32.
    pub columns: u32,
    /// Experts.
    pub experts: u32,
    /// Floats of a row of the output.
    pub stride: u32,
    /// Where the matrix's rows begin in a row of the output.
    pub first: u32,
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $tile:ident, $kind:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// Prepare it with [`expert_product`].
            ///
            /// # Safety
            /// The arguments of a launch that [`expert_product`] prepared.
            #[kernel(pdl)]
            pub unsafe fn $name(
                x: *const u8,
                factors: *const F32x2,
                order: *const u32,
                starts: *const u32,
                out: *mut f32,
                shape: ExpertProduct,
            ) {
                // SAFETY: passed on.
                unsafe { rows::<crate::tile::$tile>(x, factors, order, starts, out, shape) }
            }
        )*

        /// The launch of a kind's kernel.
        #[cfg(not(target_arch = "nvptx64"))]
        fn prepare_of(kind: Kind) -> Prepare {
            match kind {
                $(Kind::$kind => $name::prepare,)*
            }
        }
    };
}

kernels! {
    /// Experts' Q4_0 matrices times their tokens of a prompt.
    prefill_experts_q4_0 = Q4_0Tile, Q4_0;
    /// Experts' Q4_1 matrices times their tokens of a prompt.
    prefill_experts_q4_1 = Q4_1Tile, Q4_1;
    /// Experts' Q5_0 matrices times their tokens of a prompt.
    prefill_experts_q5_0 = Q5_0Tile, Q5_0;
    /// Experts' Q5_1 matrices times their tokens of a prompt.
    prefill_experts_q5_1 = Q5_1Tile, Q5_1;
    /// Experts' Q8_0 matrices times their tokens of a prompt.
    prefill_experts_q8_0 = Q8_0Tile, Q8_0;
    /// Experts' Q4_K matrices times their tokens of a prompt.
    prefill_experts_q4k = Q4KTile, Q4K;
    /// Experts' Q5_K matrices times their tokens of a prompt.
    prefill_experts_q5k = Q5KTile, Q5K;
    /// Experts' Q6_K matrices times their tokens of a prompt.
    prefill_experts_q6k = Q6KTile, Q6K;
}

/// The kernels' body.
#[inline(always)]
unsafe fn rows<T: Product>(
    x: *const u8,
    factors: *const F32x2,
    order: *const u32,
    starts: *const u32,
    out: *mut f32,
    shape: ExpertProduct,
) {
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let (group, expert) = (thread::block_idx_x() * WARPS + warp, thread::block_idx_y());
    let (matrix, blocks) = (shape.matrix, shape.columns.div_ceil(256));
    pdl::wait();
    if group >= matrix.groups {
        return;
    }
    // SAFETY: the launch has warps for the row groups and blocks for the experts; places are below the last start.
    unsafe {
        let end = global::load(starts.add(expert as usize + 1));
        let mut first = global::load(starts.add(expert as usize)) + thread::block_idx_z() * TOKENS;
        while first < end {
            let count = end - first;
            let row_of = |n: u32| token_at(order, first + if n < count { n } else { 0 });
            let tokens = Tokens::new(x, Record::whole_row_bytes(shape.columns), lane, row_of);
            let at = (expert * matrix.groups + group) as usize * blocks as usize;
            let tiles = matrix.tiles.as_ptr().add(at * T::BYTES);
            let sums = with_tokens!(count, NT => row_group::<T, NT>(tiles, blocks, &tokens, lane));
            each(&sums, count, lane, |n, row, sum| {
                let F32x2([factor, _]) = global::load(factors.add(row_of(n) as usize));
                let at = (first + n) as usize * shape.stride as usize;
                global::store(out.add(at + (shape.first + 16 * group + row) as usize), sum * factor);
            });
            first += TOKENS * thread::grid_dim_z();
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
type Prepare = fn(
    cuda_std::launch::LaunchConfig,
    DevicePtr<u8>,
    DevicePtr<F32x2>,
    DevicePtr<u32>,
    DevicePtr<u32>,
    DevicePtr<f32>,
    ExpertProduct,
) -> cuda_std::launch::PreparedLaunch;

/// The launch for `shape`: `x` and `factors` of the tokens with `order`, of the places without; `starts` has an entry for
/// each expert and one more.
///
/// # Errors
/// Columns that are no multiple of 32, no experts or no rows, rows that the output has no room for, a bias, or a matrix
/// without a kind.
#[cfg(not(target_arch = "nvptx64"))]
pub fn expert_product(
    (x, factors): (DevicePtr<u8>, DevicePtr<F32x2>),
    order: DevicePtr<u32>,
    starts: DevicePtr<u32>,
    out: DevicePtr<f32>,
    shape: ExpertProduct,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    const KERNEL: &str = "prefill_experts";
    let refuse = |rule| Err(crate::shape::ShapeError::new(KERNEL, rule));
    crate::shape::multiple(KERNEL, shape.columns as usize, 32)?;
    let prepare = prepare_of(shape.matrix.check(KERNEL)?);
    let experts = crate::shape::count(KERNEL, "experts", shape.experts as usize)?;
    let groups = crate::shape::count(KERNEL, "row groups", shape.matrix.groups as usize)?;
    crate::shape::room(KERNEL, 16 * groups, shape.first, shape.stride)?;
    if !shape.matrix.bias.is_null() {
        return refuse("experts with a bias; it takes none".to_owned());
    }
    let grid = [groups.div_ceil(WARPS), experts, SHARES];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * WARPS, 1, 1]);
    Ok(prepare(config, x, factors, order, starts, out, shape))
}
