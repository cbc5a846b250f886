//! Attention of the next tokens of several sequences, in one launch.
//!
//! Sequence s is at `states[s]`, its pages in row s of `tables`, its heads in row s of `qkv` and its output in row s of
//! `out`. A block does what a block of the [kernel of one sequence](super) does, so a sequence's output is that of the
//! launch for it alone, whatever the others are: bit for bit.
//!
//! **Bytes**: those of each sequence. **Shape of the work**: grid z is the sequence. **Launch**: [`attention_of_many`].

use super::combine::Workspace;
#[cfg(not(target_arch = "nvptx64"))]
use super::launch::{AttentionBuffers, AttentionPlan};
use super::meet::FAR;
use super::{Arguments, AttentionShape, attend};
use crate::decode::kv::{Bf16, F16, Q8_0};
use crate::decode::state::StepState;
use cuda_std::prelude::*;

/// What sequence `sequence` reads and writes, of `all` which is the first one's; tables have `pages` entries.
#[inline(always)]
fn of_sequence<const HD: u32>(all: Arguments, pages: u32, sequence: u32) -> Arguments {
    let AttentionShape { heads, kv_heads, .. } = all.shape;
    let row = |floats: u32| sequence as usize * floats as usize;
    let partial = heads * thread::grid_dim_x() * (HD + 2);
    Arguments {
        qkv: all.qkv.wrapping_add(row((heads + 2 * kv_heads) * HD)),
        state: all.state.wrapping_add(sequence as usize),
        table: all.table.wrapping_add(row(pages)),
        workspace: Workspace {
            partial: all.workspace.partial.wrapping_add(row(partial)),
            counters: all.workspace.counters.wrapping_add(row(heads)),
        },
        out: all.out.wrapping_add(row(heads * HD)),
        ..all
    }
}

macro_rules! kernels {
    ($($name:ident = $format:ident, $dims:literal, $doc:literal;)*) => {$(
        #[doc = $doc]
        ///
        /// Prepare it with [`attention_of_many`]; see the module for layouts. `counters` holds a zero for each query head
        /// of each sequence before and after.
        ///
        /// # Safety
        /// The arguments of a launch that [`attention_of_many`] prepared.
        #[kernel(pdl, registers = 160)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            qkv: *const f32,
            q_norm: *const f32,
            k_norm: *const f32,
            frequencies: *const F32x2,
            state: *const StepState,
            table: *const u32,
            keys: *mut u8,
            values: *mut u8,
            partial: *mut f32,
            counters: *mut u32,
            out: *mut f32,
            shape: AttentionShape,
            pages: u32,
        ) {
            let workspace = Workspace { partial, counters };
            let all = Arguments {
                qkv, q_norm, k_norm, frequencies, state, table, keys, values, workspace, out, shape,
                in_order: false,
            };
            // SAFETY: passed on: the launch has a row of everything for each sequence.
            unsafe { attend::<$format, $dims, 1, FAR>(of_sequence::<$dims>(all, pages, thread::block_idx_z())) }
        }
    )*};
}

kernels! {
    attention_many_64_f16 = F16, 64, "Attention of several sequences over f16, heads of 64 dims.";
    attention_many_128_f16 = F16, 128, "Attention of several sequences over f16, heads of 128 dims.";
    attention_many_64_bf16 = Bf16, 64, "Attention of several sequences over bf16, heads of 64 dims.";
    attention_many_128_bf16 = Bf16, 128, "Attention of several sequences over bf16, heads of 128 dims.";
    attention_many_64_q8_0 = Q8_0, 64, "Attention of several sequences over q8_0, heads of 64 dims.";
    attention_many_128_q8_0 = Q8_0, 128, "Attention of several sequences over q8_0, heads of 128 dims.";
}

/// The attention launch of a layer for `sequences` sequences, whose page tables have `pages` entries each. `b` is where the
/// first one's rows are; those of the others follow, in the workspace and among the counters too.
///
/// # Errors
/// Heads of other than 64 or 128 dims, more than 8 query heads a key head, or no sequences.
#[cfg(not(target_arch = "nvptx64"))]
pub fn attention_of_many(
    plan: &AttentionPlan,
    b: AttentionBuffers,
    sequences: u32,
    pages: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    use crate::decode::kv::KvFormat;
    let refuse = |rule| Err(crate::shape::ShapeError::new("attention_many", rule));
    let sequences = crate::shape::count("attention_many", "sequences", sequences as usize)?;
    if plan.wide() {
        return refuse("more than 8 query heads on a key head; it takes up to 8".to_owned());
    }
    let prepare = match (plan.format, plan.head_dim) {
        (KvFormat::F16, 64) => attention_many_64_f16::prepare,
        (KvFormat::F16, 128) => attention_many_128_f16::prepare,
        (KvFormat::Bf16, 64) => attention_many_64_bf16::prepare,
        (KvFormat::Bf16, 128) => attention_many_128_bf16::prepare,
        (KvFormat::Q8_0, 64) => attention_many_64_q8_0::prepare,
        (KvFormat::Q8_0, 128) => attention_many_128_q8_0::prepare,
        (_, dims) => return refuse(format!("heads of {dims} dims; it takes 64 or 128")),
    };
    let grid = [plan.splits, plan.shape.kv_heads, sequences];
    let config = cuda_std::launch::LaunchConfig::shaped(grid, [32 * plan.warps, 1, 1])
        .shared(plan.shared_bytes())
        .pdl(true);
    Ok(prepare(
        config,
        b.qkv,
        b.q_norm,
        b.k_norm,
        b.frequencies,
        b.state,
        b.table,
        b.keys,
        b.values,
        b.partial,
        b.counters,
        b.out,
        plan.shape,
        pages,
    ))
}
