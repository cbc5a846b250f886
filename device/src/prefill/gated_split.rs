//! The bend of a gated network for a prompt's tokens, split into the [`Record`]s that the next product reads.
//!
//! A row of the input is `gate | up`, `columns` floats each; the row that is split is `f(gate) ∘ up`, f an
//! [`Activation`](crate::general::gated::Activation). Factors have no norm in them, as [`split`](super::split) without gains
//! leaves them.
//!
//! **Bytes**: 8 a column read (the second time from L1), 4.25 written. **Shape of the work**: that of
//! [`split`](super::split).
//!
//! **Launch**: [`gated_split`].

use super::record::Record;
use super::split::{Eight, WARPS, eight, of_block, powers, store};
use crate::general::gated::bent;
use cuda_std::prelude::*;

/// A row as it is read.
#[derive(Clone, Copy)]
struct Row {
    both: *const f32,
    columns: u32,
    activation: u32,
    lane: u32,
}

impl Row {
    /// The lane's bent columns of block `block`.
    ///
    /// # Safety
    /// The row has both halves.
    #[inline(always)]
    unsafe fn load(self, block: u32) -> Eight {
        // SAFETY: the caller's.
        let (mut v, up) = unsafe {
            (
                eight(self.both, block, self.columns, self.lane),
                eight(self.both.add(self.columns as usize), block, self.columns, self.lane),
            )
        };
        unroll!(for I in 0..8 {
            v[I] = bent(v[I], self.activation) * up[I];
        });
        v
    }
}

/// Gated activation of a prompt's tokens, split into pairs of f16.
///
/// Prepare it with [`gated_split`].
///
/// # Safety
/// The arguments of a launch that [`gated_split`] prepared.
#[kernel(pdl)]
pub unsafe fn prefill_gated_split(
    both: *const f32,
    records: *mut u8,
    factors: *mut F32x2,
    columns: u32,
    activation: u32,
) {
    let (lane, warp) = (warp::lane(), thread::thread_idx_x() / 32);
    let (index, blocks) = (thread::block_idx_x() as usize, columns.div_ceil(256));
    let row = Row {
        both: both.wrapping_add(2 * index * columns as usize),
        columns,
        activation,
        lane,
    };
    pdl::wait();
    let (mut largest, mut block) = (0f32, warp);
    // SAFETY: the launch has a block for each row.
    unsafe {
        while block < blocks {
            let v = row.load(block);
            unroll!(for I in 0..8 {
                largest = float::max(largest, float::abs(v[I]));
            });
            block += WARPS;
        }
        let (up, down) = powers(of_block(0.0, largest, lane, warp).1);
        let to = records.add(index * Record::whole_row_bytes(columns));
        let mut block = warp;
        while block < blocks {
            store(to.add(block as usize * Record::BYTES), row.load(block), up, lane);
            block += WARPS;
        }
        if thread::thread_idx_x() == 0 {
            global::store(factors.add(index), F32x2([down, 1.0]));
        }
    }
}

/// The launch for `rows` rows of `columns` columns; `records` of [`Record::whole_row_bytes`] and `factors` one a row.
///
/// # Errors
/// No rows, or columns that are no multiple of 32.
#[cfg(not(target_arch = "nvptx64"))]
pub fn gated_split(
    both: DevicePtr<f32>,
    records: DevicePtr<u8>,
    factors: DevicePtr<F32x2>,
    (rows, columns): (u32, u32),
    activation: crate::general::gated::Activation,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("prefill_gated_split", columns as usize, 32)?;
    let rows = crate::shape::count("prefill_gated_split", "rows", rows as usize)?;
    let config = cuda_std::launch::LaunchConfig::new(rows, 32 * WARPS).shared(8 * WARPS);
    Ok(prefill_gated_split::prepare(
        config,
        both,
        records,
        factors,
        columns,
        activation as u32,
    ))
}
