//! A matrix of a [`Rare`] type, or a stack of them, one an expert, times a prompt's tokens:
//! `out[place][first + row] = scale_e · W_e x + bias`, or the same added to what is in the output.
//!
//! `x` are [`Record`]s of `columns` columns with their factors: of all tokens, which `order` tells for each place, or of the
//! places themselves. Places are those of [`group`](super::route::group), or without `starts` the tokens, all of them the
//! only matrix's. A row of the output has `stride` floats.
//!
//! Quantised matrices lie in tiles, those of floats as in the file, a multiple of 16 rows each.
//!
//! **Bytes**: the matrices that have tokens, once for every 32 of them. **Shape of the work**: a warp for 16 rows × 32 tokens
//! over all columns ([`row_group`], [`float_group`]), also where there are fewer tokens: one kernel a type, for matrices and for stacks, keeps
//! small what a driver compiles. Blocks over rows, experts and tokens.
//!
//! **Launch**: [`rare_product`].

use super::float_product::{Bf16Rows, F16Rows, F32Rows, FloatRows, float_group};
use super::product::{Product, Sums, TOKENS, Tokens, each, row_group, token_at};
use super::record::Record;
use crate::dense::Matrix;
use crate::tile::{Iq4NlTile, Iq4XsTile, Mxfp4Tile, Nvfp4Tile, Q2KTile, Q3KTile};
use core::marker::PhantomData;
use cuda_std::prelude::*;

/// Warps of a block.
const WARPS: u32 = 4;
/// Blocks that share the tokens of one expert.
#[cfg(not(target_arch = "nvptx64"))]
const SHARES: u32 = 4;

/// What a launch multiplies, and where results go.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct RareProduct {
    /// The matrix, or that of expert 0, its groups those of one; the others behind it.
    pub matrix: Matrix,
    /// Columns, a multiple of 32.
    pub columns: u32,
    /// Matrices.
    pub experts: u32,
    /// Tokens of the only matrix; of a stack, those of `starts` count.
    pub tokens: u32,
    /// Floats of a row of the output.
    pub stride: u32,
    /// Where the matrix's rows begin in a row of the output.
    pub first: u32,
    /// 1: onto what is in the output; 0: over it.
    pub add: u32,
}

/// Weights of one type.
trait Weights {
    /// Bytes of a group of 16 rows.
    fn group_bytes(columns: u32) -> usize;

    /// A group of rows times the tokens.
    ///
    /// # Safety
    /// The group is at `rows`, 16-byte aligned, and the tokens have `columns` columns. All lanes of the warp call this
    /// together.
    unsafe fn times(rows: *const u8, columns: u32, tokens: &Tokens, lane: u32) -> Sums;
}

/// Weights in tiles.
struct Tiles<T>(PhantomData<T>);

impl<T: Product> Weights for Tiles<T> {
    #[inline(always)]
    fn group_bytes(columns: u32) -> usize {
        columns.div_ceil(256) as usize * T::BYTES
    }

    #[inline(always)]
    unsafe fn times(rows: *const u8, columns: u32, tokens: &Tokens, lane: u32) -> Sums {
        // SAFETY: the caller's.
        unsafe { row_group::<T, 4>(rows, columns.div_ceil(256), tokens, lane) }
    }
}

/// Weights as in the file.
struct Rows<F>(PhantomData<F>);

impl<F: FloatRows> Weights for Rows<F> {
    #[inline(always)]
    fn group_bytes(columns: u32) -> usize {
        16 * columns as usize * F::BYTES
    }

    #[inline(always)]
    unsafe fn times(rows: *const u8, columns: u32, tokens: &Tokens, lane: u32) -> Sums {
        // SAFETY: the caller's.
        unsafe { float_group::<F>(rows, columns, tokens, lane) }
    }
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $weights:ty, $rare:ident, $number:literal;)*) => {
        /// Types that only prompts have a product of, so that decoding takes them one operation a launch. Their numbers are
        /// none of a [`Kind`](crate::dense::Kind).
        #[cfg(not(target_arch = "nvptx64"))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types)]
        #[repr(u32)]
        pub enum Rare {
            $(#[doc = concat!(stringify!($rare), ".")] $rare = $number,)*
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Rare {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$rare),*];

            /// That of a tensor type, if it is one.
            #[must_use]
            pub const fn of(ty: sparkinfer_gguf::types::TensorType) -> Option<Self> {
                match ty {
                    $(sparkinfer_gguf::types::TensorType::$rare => Some(Self::$rare),)*
                    _ => None,
                }
            }

            /// The tensor type.
            #[must_use]
            pub const fn ty(self) -> sparkinfer_gguf::types::TensorType {
                match self {
                    $(Self::$rare => sparkinfer_gguf::types::TensorType::$rare,)*
                }
            }

            /// That with a number, if it is one's.
            #[must_use]
            pub fn numbered(number: u32) -> Option<Self> {
                Self::ALL.iter().copied().find(|rare| *rare as u32 == number)
            }
        }

        $(
            $(#[$doc])*
            ///
            /// Prepare it with [`rare_product`].
            ///
            /// # Safety
            /// The arguments of a launch that [`rare_product`] prepared.
            #[kernel(pdl)]
            pub unsafe fn $name(
                x: *const u8,
                factors: *const F32x2,
                order: *const u32,
                starts: *const u32,
                out: *mut f32,
                shape: RareProduct,
            ) {
                // SAFETY: passed on.
                unsafe { rows::<$weights>(x, factors, order, starts, out, shape) }
            }
        )*

        /// The launch of a type's kernel.
        #[cfg(not(target_arch = "nvptx64"))]
        fn prepare_of(rare: Rare) -> Prepare {
            match rare {
                $(Rare::$rare => $name::prepare,)*
            }
        }
    };
}

kernels! {
    /// Q2_K matrices times a prompt's tokens.
    prefill_rare_q2k = Tiles<Q2KTile>, Q2_K, 32;
    /// Q3_K matrices times a prompt's tokens.
    prefill_rare_q3k = Tiles<Q3KTile>, Q3_K, 33;
    /// IQ4_NL matrices times a prompt's tokens.
    prefill_rare_iq4_nl = Tiles<Iq4NlTile>, IQ4_NL, 34;
    /// IQ4_XS matrices times a prompt's tokens.
    prefill_rare_iq4_xs = Tiles<Iq4XsTile>, IQ4_XS, 35;
    /// MXFP4 matrices times a prompt's tokens.
    prefill_rare_mxfp4 = Tiles<Mxfp4Tile>, MXFP4, 36;
    /// NVFP4 matrices times a prompt's tokens.
    prefill_rare_nvfp4 = Tiles<Nvfp4Tile>, NVFP4, 37;
    /// F16 matrices times a prompt's tokens.
    prefill_rare_f16 = Rows<F16Rows>, F16, 38;
    /// BF16 matrices times a prompt's tokens.
    prefill_rare_bf16 = Rows<Bf16Rows>, BF16, 39;
    /// F32 matrices times a prompt's tokens.
    prefill_rare_f32 = Rows<F32Rows>, F32, 40;
}

/// The kernels' body.
#[inline(always)]
unsafe fn rows<W: Weights>(
    x: *const u8,
    factors: *const F32x2,
    order: *const u32,
    starts: *const u32,
    out: *mut f32,
    shape: RareProduct,
) {
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let (group, expert) = (thread::block_idx_x() * WARPS + warp, thread::block_idx_y());
    let matrix = shape.matrix;
    pdl::wait();
    if group >= matrix.groups {
        return;
    }
    // SAFETY: the launch has warps for the row groups and blocks for the experts; places are below the last start.
    unsafe {
        let (mut first, mut end) = (0, shape.tokens);
        if !starts.is_null() {
            first = global::load(starts.add(expert as usize));
            end = global::load(starts.add(expert as usize + 1));
        }
        first += thread::block_idx_z() * TOKENS;
        let at = (expert * matrix.groups + group) as usize;
        let rows = matrix.tiles.as_ptr().add(at * W::group_bytes(shape.columns));
        let scale = matrix.scale_of(expert);
        let bias = [lane >> 2, (lane >> 2) + 8].map(|row| matrix.bias_of(group, row));
        while first < end {
            let count = end - first;
            let row_of = |n: u32| token_at(order, first + if n < count { n } else { 0 });
            let tokens = Tokens::new(x, Record::whole_row_bytes(shape.columns), lane, row_of);
            let sums = W::times(rows, shape.columns, &tokens, lane);
            each(&sums, count, lane, |n, row, sum| {
                let F32x2([factor, _]) = global::load(factors.add(row_of(n) as usize));
                let at = (first + n) as usize * shape.stride as usize;
                let to = out.add(at + (shape.first + 16 * group + row) as usize);
                let bias = if row < 8 { bias[0] } else { bias[1] };
                let before = if shape.add == 0 { bias } else { global::load(to) + bias };
                global::store(to, float::fma(sum, factor * scale, before));
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
    RareProduct,
) -> cuda_std::launch::PreparedLaunch;

/// Whose token is at which place: `order` (or null: the token of the same number) and `starts`, an entry for each expert and
/// one more (or null: the only matrix has all tokens).
pub type Places = (DevicePtr<u32>, DevicePtr<u32>);

/// The launch for `shape`: `x` and `factors` of the tokens with an order, of the places without.
///
/// # Errors
/// Columns that are no multiple of 32, no matrices, no rows or no tokens, rows that the output has no room for, several
/// matrices without starts, a stack with a bias, or a matrix that is of none of these types.
#[cfg(not(target_arch = "nvptx64"))]
pub fn rare_product(
    (x, factors): (DevicePtr<u8>, DevicePtr<F32x2>),
    (order, starts): Places,
    out: DevicePtr<f32>,
    shape: RareProduct,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    const KERNEL: &str = "prefill_rare";
    let refuse = |rule| Err(crate::shape::ShapeError::new(KERNEL, rule));
    crate::shape::multiple(KERNEL, shape.columns as usize, 32)?;
    let experts = crate::shape::count(KERNEL, "matrices", shape.experts as usize)?;
    let groups = crate::shape::count(KERNEL, "row groups", shape.matrix.groups as usize)?;
    let Some(rare) = Rare::numbered(shape.matrix.kind) else {
        return refuse(format!(
            "weights of kind {}, which is none of its own",
            shape.matrix.kind
        ));
    };
    crate::shape::room(KERNEL, 16 * groups, shape.first, shape.stride)?;
    let shares = if !starts.is_null() {
        SHARES
    } else {
        crate::shape::count(KERNEL, "tokens", shape.tokens as usize)?.div_ceil(TOKENS)
    };
    if experts > 1 && (starts.is_null() || !shape.matrix.bias.is_null()) {
        return refuse(format!("{experts} matrices without starts, or with a bias"));
    }
    let grid = [groups.div_ceil(WARPS), experts, shares];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * WARPS, 1, 1]);
    Ok(prepare_of(rare)(config, x, factors, order, starts, out, shape))
}
