//! Matrix × vector for any tensor type, decoded where it is read.
//!
//! **Computes** `y[r] = scale·Σ_c W[r][c]·x[c] + bias[r]` in f32, W in any [`Format`](format::Format) as in the file, x and y f32; and
//! the same for chosen experts, a rank each: rank k takes matrix `ids[k]` of a stack ([`Extra`]).
//!
//! **Moves** the file's bytes of W, once.
//!
//! **Shape of work**: rows of plain floats in [`plain`], rows of blocks in [`staged`]. Grid y is the rank. It serves every
//! type and every width from the first day; types that matter get a kernel of their own.
//!
//! **Launch**: [`launch`], [`launch_with`]; columns a multiple of the type's block (any number for plain types). PDL
//! allowed.

mod digits;
mod plain;
mod ring;
mod staged;

use crate::format::{self, each_format};
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

macro_rules! kernel {
    ([$($attribute:tt)*] $format:ident, $way:ident, $name:ident $doc:tt) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// The launch follows [`config`]: weights has `rows` rows, x `columns` and y `rows` values, and what `extra` says
        /// is there.
        #[kernel($($attribute)*)]
        pub unsafe fn $name(weights: *const u8, x: *const f32, y: *mut f32, rows: u32, columns: u32, extra: Extra) {
            // SAFETY: the launch's contract.
            unsafe { $way::multiply::<format::$format>(weights, x, y, rows, columns, extra) }
        }
    };
    (plain $($rest:tt)*) => { kernel! { [pdl] $($rest)* } };
    // Four blocks of threads a multiprocessor.
    (staged $($rest:tt)*) => { kernel! { [pdl, registers = 64] $($rest)* } };
}

macro_rules! kernels {
    ($($format:ident, $ty:ident, $way:ident: $_:ident $__:tt, $name:ident $doc:tt;)*) => {
        $(kernel! { $way $format, $way, $name $doc })*

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
    use super::{Extra, ring, staged};
    use crate::layout::Shape;
    use crate::mmvq::Operands;
    use crate::shape::{ShapeError, count, multiple};
    use cuda_std::DevicePtr;
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};
    use sparkinfer_gguf::types::TensorType;

    /// Threads of a block for plain types, a row for each warp.
    const PLAIN_THREADS: u32 = 128;

    pub(super) type Prepare =
        fn(LaunchConfig, DevicePtr<u8>, DevicePtr<f32>, DevicePtr<f32>, u32, u32, Extra) -> PreparedLaunch;

    /// The shape of a launch over rows of type `ty`, on at most `max_blocks` blocks of threads; with it, rows and columns
    /// as the kernels take them.
    ///
    /// # Errors
    /// When there are no rows, or the columns are no multiple of the type's block.
    pub fn config(ty: TensorType, shape: Shape, max_blocks: u32) -> Result<(LaunchConfig, u32, u32), ShapeError> {
        let rows = count("gemv", "rows", shape.rows)?;
        let (block, bytes) = (ty.block_len() as u32, ty.block_bytes() as u32);
        let columns = multiple("gemv", shape.columns, block as usize)?;
        let (threads, rows_at_a_time, shared) = if block == 1 {
            (PLAIN_THREADS, PLAIN_THREADS / 32, 0)
        } else {
            (staged::THREADS, ring::ROWS, staged::shared_bytes(columns, block, bytes))
        };
        let grid = rows.div_ceil(rows_at_a_time).min(max_blocks.max(1));
        Ok((LaunchConfig::new(grid, threads).shared(shared).pdl(true), rows, columns))
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
        let (config, rows, columns) = config(ty, shape, max_blocks)?;
        let config = LaunchConfig {
            grid: [config.grid[0], ranks, 1],
            ..config
        };
        Ok(prepare(config, o.weights, o.x.cast(), o.y, rows, columns, extra))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::{config, launch, launch_with};
