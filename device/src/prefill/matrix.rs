//! Up to three tiled matrices of one [`Kind`] times a prompt's tokens: `out[token][first + row] = W x +
//! bias`, or the same added to what is in the output.
//!
//! `x` are [`Record`]s of `columns` columns a token with their factors; a row of the output has `stride` floats, the rows of
//! the matrices one behind the other from `first` on.
//!
//! **Bytes**: the matrices once for every 32 tokens, from L2 from the second time on. **Shape of the work**: a warp for 16
//! rows × 32 tokens over all columns ([`row_group`]); the four warps of a block share the tokens, whose records they find
//! in L1. No barrier and no shared memory.
//!
//! **Launch**: [`product`].

use super::product::{Product, TOKENS, Tokens, each, row_group, with_tokens};
use super::record::Record;
#[cfg(not(target_arch = "nvptx64"))]
use crate::dense::Kind;
use crate::dense::Matrix;
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 4;

/// What a launch multiplies, and where results go.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct ProductShape {
    /// The matrices; those that are not there have no groups.
    pub matrices: [Matrix; 3],
    /// Their columns, a multiple of 32.
    pub columns: u32,
    /// Tokens.
    pub tokens: u32,
    /// Floats of a row of the output.
    pub stride: u32,
    /// Where the first matrix's rows begin in a row of the output.
    pub first: u32,
    /// 1: onto what is in the output; 0: over it.
    pub add: u32,
    /// Zero; keeps the size a multiple of 8.
    pub reserved: u32,
}

impl ProductShape {
    /// Groups of 16 rows of all matrices.
    #[inline(always)]
    fn groups(&self) -> u32 {
        let [a, b, c] = self.matrices;
        a.groups + b.groups + c.groups
    }

    /// The matrix that has row group `group` of all, and its index there.
    #[inline(always)]
    fn segment(&self, group: u32) -> (Matrix, u32) {
        let [a, b, c] = self.matrices;
        if group < a.groups {
            (a, group)
        } else if group < a.groups + b.groups {
            (b, group - a.groups)
        } else {
            (c, group - a.groups - b.groups)
        }
    }
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $tile:ident, $kind:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// Prepare it with [`product`].
            ///
            /// # Safety
            /// The arguments of a launch that [`product`] prepared.
            #[kernel(pdl)]
            pub unsafe fn $name(x: *const u8, factors: *const F32x2, out: *mut f32, shape: ProductShape) {
                // SAFETY: passed on.
                unsafe { rows::<crate::tile::$tile>(x, factors, out, shape) }
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
    /// Up to three Q4_0 matrices times a prompt's tokens.
    prefill_matrix_q4_0 = Q4_0Tile, Q4_0;
    /// Up to three Q4_1 matrices times a prompt's tokens.
    prefill_matrix_q4_1 = Q4_1Tile, Q4_1;
    /// Up to three Q5_0 matrices times a prompt's tokens.
    prefill_matrix_q5_0 = Q5_0Tile, Q5_0;
    /// Up to three Q5_1 matrices times a prompt's tokens.
    prefill_matrix_q5_1 = Q5_1Tile, Q5_1;
    /// Up to three Q8_0 matrices times a prompt's tokens.
    prefill_matrix_q8_0 = Q8_0Tile, Q8_0;
    /// Up to three Q4_K matrices times a prompt's tokens.
    prefill_matrix_q4k = Q4KTile, Q4K;
    /// Up to three Q5_K matrices times a prompt's tokens.
    prefill_matrix_q5k = Q5KTile, Q5K;
    /// Up to three Q6_K matrices times a prompt's tokens.
    prefill_matrix_q6k = Q6KTile, Q6K;
}

/// The kernels' body.
#[inline(always)]
unsafe fn rows<T: Product>(x: *const u8, factors: *const F32x2, out: *mut f32, shape: ProductShape) {
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let (group, first) = (thread::block_idx_x() * WARPS + warp, thread::block_idx_y() * TOKENS);
    pdl::wait();
    if group >= shape.groups() {
        return;
    }
    let (matrix, within) = shape.segment(group);
    let (blocks, count) = (shape.columns.div_ceil(256), shape.tokens - first);
    let tokens = Tokens::new(x, Record::whole_row_bytes(shape.columns), lane, |n| {
        first + if n < count { n } else { 0 }
    });
    // SAFETY: the launch has warps for the row groups and blocks for the tokens; memory is as long as the shape says.
    unsafe {
        let tiles = matrix.tiles.as_ptr().add(within as usize * blocks as usize * T::BYTES);
        let sums = with_tokens!(count, NT => row_group::<T, NT>(tiles, blocks, &tokens, lane));
        let bias = [lane >> 2, (lane >> 2) + 8].map(|row| matrix.bias_of(within, row));
        each(&sums, count, lane, |token, row, sum| {
            let token = (first + token) as usize;
            let F32x2([factor, _]) = global::load(factors.add(token));
            let to = out.add(token * shape.stride as usize + (shape.first + 16 * group + row) as usize);
            let bias = if row < 8 { bias[0] } else { bias[1] };
            let before = if shape.add == 0 { bias } else { global::load(to) + bias };
            global::store(to, float::fma(sum, factor, before));
        });
    }
}

#[cfg(not(target_arch = "nvptx64"))]
type Prepare = fn(
    cuda_std::launch::LaunchConfig,
    DevicePtr<u8>,
    DevicePtr<F32x2>,
    DevicePtr<f32>,
    ProductShape,
) -> cuda_std::launch::PreparedLaunch;

/// The launch for `shape`: `x` and `factors` from [`split`](super::split::split) or
/// [`gated_split`](super::gated_split::gated_split).
///
/// # Errors
/// Columns that are no multiple of 32, no rows, no tokens, rows that the output has no room for, matrices of several types
/// or without a kind.
#[cfg(not(target_arch = "nvptx64"))]
pub fn product(
    x: DevicePtr<u8>,
    factors: DevicePtr<F32x2>,
    out: DevicePtr<f32>,
    shape: ProductShape,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    const KERNEL: &str = "prefill_matrix";
    crate::shape::multiple(KERNEL, shape.columns as usize, 32)?;
    let refuse = |rule| Err(crate::shape::ShapeError::new(KERNEL, rule));
    let prepare = prepare_of(shape.matrices[0].check(KERNEL)?);
    let others = shape.matrices.iter().filter(|matrix| matrix.groups > 0);
    if others.into_iter().any(|matrix| matrix.kind != shape.matrices[0].kind) {
        return refuse("matrices of different types; it takes one".to_owned());
    }
    let tokens = crate::shape::count(KERNEL, "tokens", shape.tokens as usize)?;
    let groups = crate::shape::count(KERNEL, "row groups", shape.groups() as usize)?;
    crate::shape::room(KERNEL, 16 * groups, shape.first, shape.stride)?;
    let grid = [groups.div_ceil(WARPS), tokens.div_ceil(TOKENS), 1];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * WARPS, 1, 1]);
    Ok(prepare(config, x, factors, out, shape))
}
