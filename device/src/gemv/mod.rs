//! Matrix × vector for any tensor type, decoded where it is read.
//!
//! **Computes** `y[r] = scale·Σ_c W[r][c]·x[c] + bias[r]` in f32, W in any [`Format`] as in the file, x and y f32; and
//! the same for chosen experts, a rank each: rank k takes matrix `ids[k]` of a stack ([`Extra`]).
//!
//! **Moves** the file's bytes of W, once (types aligned to 2 bytes in several small loads), and x from L1 for each row.
//!
//! **Shape of work**: a warp takes a row, a lane every 32nd piece of eight columns; warps stride over the rows. A piece is
//! asked for before the last one is used, the first before the wait, unless the launch before chooses the matrix. Grid y
//! is the rank. It serves every type and every width from the first day; types that matter get a kernel of their own.
//!
//! **Launch**: [`launch`], [`launch_with`]; columns a multiple of the type's block (any number for plain types). PDL
//! allowed.

use crate::format::{self, Format, each_format};
use core::marker::PhantomData;
use cuda_std::prelude::*;

/// What a product has beside its matrix and vector: chosen experts, a second scale, a bias.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Extra {
    /// The expert of each rank, written by an earlier launch; null: one rank, the first matrix.
    pub ids: DevicePtr<u32>,
    /// Multiplies the results; null: nothing does.
    pub scale: DevicePtr<f32>,
    /// Added to the scaled results, one value a row; null: none.
    pub bias: DevicePtr<f32>,
    /// Bytes from one expert's matrix to the next.
    pub expert_bytes: u64,
    /// From one rank's x to the next, floats (a multiple of 4) or bytes of records; 0: all ranks share one.
    pub x_stride: u32,
    /// 1: a scale for each expert; 0: one for all.
    pub scale_stride: u32,
}

impl Extra {
    /// Nothing beside matrix and vector.
    pub const NONE: Self = Self {
        ids: DevicePtr::null(),
        scale: DevicePtr::null(),
        bias: DevicePtr::null(),
        expert_bytes: 0,
        x_stride: 0,
        scale_stride: 0,
    };

    /// The expert of rank `rank`. Called after the wait where there are ids.
    #[inline(always)]
    pub(crate) unsafe fn expert(&self, rank: usize) -> usize {
        if self.ids.is_null() {
            return 0;
        }
        // SAFETY: the launch's contract: an id for each rank.
        unsafe { global::load(self.ids.as_ptr().add(rank)) as usize }
    }

    /// The factor of an expert's results.
    #[inline(always)]
    pub(crate) unsafe fn factor(&self, expert: usize) -> f32 {
        if self.scale.is_null() {
            return 1.0;
        }
        // SAFETY: the launch's contract: a scale for each expert, or one.
        unsafe { global::load_nc(self.scale.as_ptr().add(expert * self.scale_stride as usize)) }
    }

    /// What is added to row `r`.
    #[inline(always)]
    pub(crate) unsafe fn term(&self, r: u32) -> f32 {
        if self.bias.is_null() {
            return 0.0;
        }
        // SAFETY: the launch's contract: a value for each row.
        unsafe { global::load_nc(self.bias.as_ptr().add(r as usize)) }
    }
}

/// Floats from one rank's results to the next: the rows, rounded up so that each rank's are aligned to 16 bytes.
#[must_use]
#[inline(always)]
pub const fn rank_stride(rows: u32) -> u32 {
    (rows + 3) & !3
}

/// `sum` plus the product of eight weights with activations 8·piece … 8·piece + 7.
#[inline(always)]
unsafe fn dot(w: [f32; 8], x: *const f32, piece: u32, sum: f32) -> f32 {
    // SAFETY: the caller's: the piece lies within x, whose start is aligned to 16 bytes.
    let (a, b) = unsafe {
        let x = x.add(8 * piece as usize).cast::<F32x4>();
        (global::load(x).0, global::load(x.add(1)).0)
    };
    let low = float::fma(
        w[0],
        a[0],
        float::fma(w[1], a[1], float::fma(w[2], a[2], float::fma(w[3], a[3], sum))),
    );
    float::fma(
        w[4],
        b[0],
        float::fma(w[5], b[1], float::fma(w[6], b[2], float::fma(w[7], b[3], low))),
    )
}

/// A lane's place: a row, and one of its pieces of eight columns.
#[derive(Clone, Copy)]
struct Place {
    row: u32,
    piece: u32,
}

/// A matrix in format `F`.
struct Rows<F: Format> {
    start: *const u8,
    rows: u32,
    columns: u32,
    format: PhantomData<F>,
}

impl<F: Format> Rows<F> {
    #[inline(always)]
    unsafe fn row(&self, row: u32) -> *const u8 {
        // SAFETY: the caller's: the row exists.
        unsafe { self.start.add(row as usize * F::row_bytes(self.columns)) }
    }

    /// The weights of a place; zeros outside the matrix.
    #[inline(always)]
    unsafe fn eight(&self, at: Place) -> [f32; 8] {
        if at.row < self.rows && at.piece < self.columns / 8 {
            // SAFETY: the piece lies within the row.
            unsafe { F::eight(self.row(at.row), at.piece) }
        } else {
            [0.0; 8]
        }
    }

    /// `sum` plus the lane's product of the columns behind the last whole piece.
    #[inline(always)]
    unsafe fn end(&self, row: u32, x: *const f32, lane: u32, sum: f32) -> f32 {
        let column = self.columns / 8 * 8 + lane;
        if F::BLOCK > 1 || column >= self.columns {
            return sum;
        }
        // SAFETY: the column lies within the row and within x.
        unsafe { float::fma(F::one(self.row(row), column), global::load(x.add(column as usize)), sum) }
    }
}

#[inline(always)]
unsafe fn multiply<F: Format>(weights: *const u8, x: *const f32, y: *mut f32, rows: u32, columns: u32, extra: Extra) {
    let lane = thread::thread_idx_x() & 31;
    let (warps, pieces) = (thread::grid_dim_x() * thread::block_dim_x() / 32, columns / 8);
    let mut at = Place {
        row: (thread::block_idx_x() * thread::block_dim_x() + thread::thread_idx_x()) / 32,
        piece: lane,
    };
    if !extra.ids.is_null() {
        // The launch before chooses the matrix.
        pdl::wait();
    }
    let rank = thread::block_idx_y() as usize;
    // SAFETY: the launch's contract: every rank has an expert, an x and results.
    let (matrix, x, y, factor) = unsafe {
        let expert = extra.expert(rank);
        let matrix = Rows::<F> {
            start: weights.add(expert * extra.expert_bytes as usize),
            rows,
            columns,
            format: PhantomData,
        };
        let (x, y) = (
            x.add(rank * extra.x_stride as usize),
            y.add(rank * rank_stride(rows) as usize),
        );
        (matrix, x, y, extra.factor(expert))
    };
    // SAFETY: only what is in the matrix is read.
    let mut piece = unsafe { matrix.eight(at) };
    pdl::launch_dependents();
    pdl::wait();
    while at.row < rows {
        let (row, mut sum) = (at.row, 0f32);
        while at.row == row {
            let next = if at.piece + 32 < pieces {
                Place {
                    row,
                    piece: at.piece + 32,
                }
            } else {
                Place {
                    row: row + warps,
                    piece: lane,
                }
            };
            // SAFETY: as above. Loaded before the last one is used: a lane has two pieces on the way.
            let ahead = unsafe { matrix.eight(next) };
            if at.piece < pieces {
                // SAFETY: the piece lies within x.
                sum = unsafe { dot(piece, x, at.piece, sum) };
            }
            (piece, at) = (ahead, next);
        }
        // SAFETY: the row exists.
        sum = warp::sum(unsafe { matrix.end(row, x, lane, sum) });
        if lane == 0 {
            // SAFETY: y and the bias have `rows` elements.
            unsafe { global::store(y.add(row as usize), sum * factor + extra.term(row)) };
        }
    }
}

macro_rules! kernels {
    ($($format:ident, $ty:ident: $_:ident $__:tt, $name:ident $doc:tt;)*) => {
        $(
        #[doc = $doc]
        ///
        /// # Safety
        /// The launch follows [`config`]: weights has `rows` rows, x `columns` and y `rows` values, and what `extra` says
        /// is there.
        #[kernel(pdl)]
        pub unsafe fn $name(weights: *const u8, x: *const f32, y: *mut f32, rows: u32, columns: u32, extra: Extra) {
            // SAFETY: the launch's contract.
            unsafe { multiply::<format::$format>(weights, x, y, rows, columns, extra) }
        }
        )*

        /// The launch of a type's kernel.
        #[cfg(not(target_arch = "nvptx64"))]
        fn prepare_of(ty: sparkinfer_gguf::types::TensorType) -> Option<host::Prepare> {
            match ty {
                $(sparkinfer_gguf::types::TensorType::$ty => Some($name::prepare),)*
                _ => None,
            }
        }
    };
}

each_format!(kernels);

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::Extra;
    use crate::layout::Shape;
    use crate::mmvq::Operands;
    use crate::shape::{ShapeError, count, multiple};
    use cuda_std::DevicePtr;
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};
    use sparkinfer_gguf::types::TensorType;

    const THREADS: u32 = 128;

    pub(super) type Prepare =
        fn(LaunchConfig, DevicePtr<u8>, DevicePtr<f32>, DevicePtr<f32>, u32, u32, Extra) -> PreparedLaunch;

    /// The shape of a launch over rows whose type has blocks of `block` columns, on at most `max_blocks` blocks of
    /// threads; with it, rows and columns as the kernels take them.
    ///
    /// # Errors
    /// When there are no rows, or the columns are no multiple of the block.
    pub fn config(shape: Shape, block: u32, max_blocks: u32) -> Result<(LaunchConfig, u32, u32), ShapeError> {
        let rows = count("gemv", "rows", shape.rows)?;
        let columns = multiple("gemv", shape.columns, block as usize)?;
        let grid = rows.div_ceil(THREADS / 32).min(max_blocks.max(1));
        Ok((LaunchConfig::new(grid, THREADS).pdl(true), rows, columns))
    }

    impl Extra {
        /// Checks that `ranks` may be launched, whose x lie a multiple of `unit` apart.
        ///
        /// # Errors
        /// No ranks or more than a grid has rows, more than one without ids, or another distance.
        pub(crate) fn check_ranks(&self, kernel: &'static str, ranks: u32, unit: u32) -> Result<(), ShapeError> {
            let refuse = |rule| Err(ShapeError::new(kernel, rule));
            if !(1..=65_535).contains(&ranks) || (ranks > 1 && self.ids.is_null()) {
                return refuse(format!("{ranks} ranks; it takes 1 to 65535, and ids for more than 1"));
            }
            if !self.x_stride.is_multiple_of(unit) {
                return refuse(format!("ranks {} apart; it takes multiples of {unit}", self.x_stride));
            }
            Ok(())
        }
    }

    /// `y = W·x` with W of type `ty` as in the file and x as plain floats, on at most `max_blocks` blocks of threads.
    ///
    /// # Errors
    /// A type that has no kernel, and as [`config`].
    pub fn launch(ty: TensorType, shape: Shape, o: Operands, max_blocks: u32) -> Result<PreparedLaunch, ShapeError> {
        launch_with(ty, shape, o, max_blocks, Extra::NONE, 1)
    }

    /// As [`launch`], with what `extra` says, for `ranks` experts: `y` has [`rank_stride`](super::rank_stride) floats for
    /// each.
    ///
    /// # Errors
    /// As [`launch`]; no ranks or more than a grid has rows, more than one without ids, or ranks whose x is not aligned.
    pub fn launch_with(
        ty: TensorType,
        shape: Shape,
        o: Operands,
        max_blocks: u32,
        extra: Extra,
        ranks: u32,
    ) -> Result<PreparedLaunch, ShapeError> {
        let refuse = |rule| ShapeError::new("gemv", rule);
        let kernel = super::prepare_of(ty);
        let prepare = kernel.ok_or_else(|| refuse(format!("weights of type {ty}, which has no kernel")))?;
        extra.check_ranks("gemv", ranks, 4)?;
        let (config, rows, columns) = config(shape, ty.block_len() as u32, max_blocks)?;
        let config = LaunchConfig {
            grid: [config.grid[0], ranks, 1],
            ..config
        };
        Ok(prepare(config, o.weights, o.x.cast(), o.y, rows, columns, extra))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::{config, launch, launch_with};
