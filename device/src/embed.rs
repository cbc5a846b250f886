//! Embedding: rows of a table by token id.
//!
//! **Computes** `out[t][c] = scale·table[tokens[t]][c]`, the table in any [`Format`] as in the file, out f32. The ids are
//! read on the device. An id outside the table gives a row of NaN: nothing outside is read, and the mistake shows.
//!
//! **Moves** one row a token.
//!
//! **Shape of work**: a thread decodes eight columns; grid y is the token. A row is a few KB: this is latency, one load deep.
//!
//! **Launch**: [`config`]; columns a multiple of 8. PDL allowed: the ids may come from the launch before.

use crate::format::{self, Format, each_format};
use cuda_std::prelude::*;

/// Size of a table, and what its values are multiplied with.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Table {
    /// Rows of the table.
    pub rows: u32,
    /// Columns of a row, a multiple of 8.
    pub columns: u32,
    /// Multiplies every value.
    pub scale: f32,
}

#[inline(always)]
unsafe fn row<F: Format>(data: *const u8, table: Table, tokens: *const u32, out: *mut f32) {
    let piece = thread::block_idx_x() * thread::block_dim_x() + thread::thread_idx_x();
    let token = thread::block_idx_y() as usize;
    // Waits first: a decode step begins here, and its launches rely on everything of the step before being visible.
    pdl::wait();
    pdl::launch_dependents();
    if piece >= table.columns / 8 {
        return;
    }
    // SAFETY: one id for each token of the grid.
    let id = unsafe { global::load(tokens.add(token)) };
    let values = if id < table.rows {
        // SAFETY: the row exists, and the piece in it.
        unsafe { F::eight(data.add(id as usize * F::row_bytes(table.columns)), piece) }
    } else {
        [f32::NAN; 8]
    };
    let v = crate::format::map(values, |v| v * table.scale);
    // SAFETY: out has a row for each token.
    unsafe {
        let to = out
            .add(token * table.columns as usize + 8 * piece as usize)
            .cast::<F32x4>();
        global::store(to, F32x4([v[0], v[1], v[2], v[3]]));
        global::store(to.add(1), F32x4([v[4], v[5], v[6], v[7]]));
    }
}

macro_rules! kernels {
    ($($format:ident, $ty:ident, $_way:ident: $name:ident $doc:tt, $_:ident $__:tt;)*) => {
        $(
        #[doc = $doc]
        ///
        /// # Safety
        /// The launch follows [`config`]: the table has its rows, `tokens` one id and `out` one row a token.
        #[kernel(pdl)]
        pub unsafe fn $name(data: *const u8, table: Table, tokens: *const u32, out: *mut f32) {
            // SAFETY: the launch's contract.
            unsafe { row::<format::$format>(data, table, tokens, out) }
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
    use super::Table;
    use crate::shape::{ShapeError, count, multiple};
    use cuda_std::DevicePtr;
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};
    use sparkinfer_gguf::TensorType;

    const THREADS: u32 = 128;

    pub(super) type Prepare = fn(LaunchConfig, DevicePtr<u8>, Table, DevicePtr<u32>, DevicePtr<f32>) -> PreparedLaunch;

    /// The shape of a launch that looks up `tokens` ids.
    ///
    /// # Errors
    /// When the columns are no multiple of 8, or there are no tokens or more than a grid has rows.
    pub fn config(table: Table, tokens: usize) -> Result<LaunchConfig, ShapeError> {
        let pieces = multiple("embed", table.columns as usize, 8)? / 8;
        let tokens = count("embed", "tokens", tokens)?;
        if tokens > 65_535 {
            return Err(ShapeError::new(
                "embed",
                format!("{tokens} tokens; it takes 65535 at a time"),
            ));
        }
        Ok(LaunchConfig::shaped([pieces.div_ceil(THREADS), tokens, 1], [THREADS, 1, 1]).pdl(true))
    }

    /// The launch that looks up `count` ids in a table of type `ty`.
    ///
    /// # Errors
    /// A type that has no kernel, and as [`config`].
    pub fn launch(
        ty: TensorType,
        data: DevicePtr<u8>,
        table: Table,
        tokens: DevicePtr<u32>,
        out: DevicePtr<f32>,
        count: usize,
    ) -> Result<PreparedLaunch, ShapeError> {
        let refuse = || ShapeError::new("embed", format!("a table of type {ty}, which has no kernel"));
        let prepare = super::prepare_of(ty).ok_or_else(refuse)?;
        Ok(prepare(config(table, count)?, data, table, tokens, out))
    }

    /// One row: the table's `values` (all rows, decoded) of `id`, scaled; NaN for an id outside.
    pub fn reference(values: &[f32], table: Table, id: u32) -> Vec<f64> {
        let columns = table.columns as usize;
        match values.chunks_exact(columns).nth(id as usize) {
            Some(row) => row.iter().map(|v| f64::from(*v) * f64::from(table.scale)).collect(),
            None => vec![f64::NAN; columns],
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::{config, launch, reference};
