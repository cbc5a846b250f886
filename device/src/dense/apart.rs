//! The residual stream as the first launch of an operation finds it: complete, or with the result of the operation before
//! still apart.
//!
//! Where a norm stands behind an operation its result y must be known whole before it can be added. The launches that come
//! next read it whole anyway: each of their blocks makes `x' = x + y ∘ p / rms(y)` for itself, multiplies `x' ∘ g`, and
//! knows `rms(x')` when its warps have met. The first blocks leave x' where nobody reads x.

use super::residual::Post;
use super::rows::Place;
use crate::decode::columns::Columns;
use crate::decode::residual::{Residual, Squares, sum_of_16};
use cuda_std::prelude::*;

/// A stream whose last addend is still apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Apart {
    /// x, 16-byte aligned.
    pub x: DevicePtr<f32>,
    /// What is to be added, and the norm that it goes through.
    pub post: Post,
    /// Gains of the norm behind the sum.
    pub gain: DevicePtr<f32>,
    /// Where the sum goes: other memory than x, which other blocks still read.
    pub to: DevicePtr<f32>,
}

#[cfg(not(target_arch = "nvptx64"))]
impl Apart {
    /// Refuses a launch with too few blocks to leave the sum.
    pub(super) fn check(
        kernel: &'static str,
        columns: u32,
        config: &cuda_std::launch::LaunchConfig,
    ) -> Result<(), crate::shape::ShapeError> {
        let (blocks, groups) = (columns.div_ceil(256), config.grid[0]);
        if groups >= blocks {
            return Ok(());
        }
        let rule = format!("{groups} row groups for {blocks} blocks of 256 columns; it takes no fewer");
        Err(crate::shape::ShapeError::new(kernel, rule))
    }
}

/// A vector of a launch, 256 columns at a time.
pub(super) trait Vector: Copy {
    /// What a warp learns of the vector.
    type Known: Copy;

    /// What the warp can send for before the wait.
    fn expect<const SIDES: usize>(self, _at: Place<SIDES>, _first: u32) {}

    /// What is known first, behind the wait. All lanes of the warp call this together.
    ///
    /// # Safety
    /// The vector is as long as the launch's columns.
    unsafe fn known<const SIDES: usize>(self, at: Place<SIDES>) -> Self::Known;

    /// The columns of block `block`. All lanes of the warp call this together.
    ///
    /// # Safety
    /// As [`known`](Self::known); the vector has the block.
    unsafe fn columns<const SIDES: usize>(self, known: &mut Self::Known, at: Place<SIDES>, block: u32) -> Columns;
}

impl Vector for *const f32 {
    type Known = ();

    #[inline(always)]
    unsafe fn known<const SIDES: usize>(self, _at: Place<SIDES>) {}

    #[inline(always)]
    unsafe fn columns<const SIDES: usize>(self, (): &mut (), at: Place<SIDES>, block: u32) -> Columns {
        // SAFETY: the caller's.
        unsafe { Columns::load(self.wrapping_add((256 * block) as usize), at.lane) }
    }
}

/// A stream, which launches take normed: its columns are `x ∘ g`, and `1 / rms(x)` is a factor of what they make of them.
pub(super) trait Stream: Vector {
    /// The warp's part of the factor, in front of the barrier behind which it is [`scale`](Self::scale).
    fn meet<const SIDES: usize>(self, known: Self::Known, at: Place<SIDES>, eps: f32) -> f32;

    /// The factor, in the first warp.
    fn scale<const SIDES: usize>(self, met: f32, at: Place<SIDES>, eps: f32) -> f32;
}

/// The first warp finds the sum of squares ready.
impl Vector for Residual {
    type Known = Squares;

    #[inline(always)]
    unsafe fn known<const SIDES: usize>(self, at: Place<SIDES>) -> Squares {
        if at.warp == 0 {
            // SAFETY: the caller's.
            unsafe { self.squares(at.columns, at.lane) }.gathered()
        } else {
            Squares::NONE
        }
    }

    #[inline(always)]
    unsafe fn columns<const SIDES: usize>(self, _: &mut Squares, at: Place<SIDES>, block: u32) -> Columns {
        // SAFETY: the caller's.
        unsafe { self.gained.as_ptr().columns(&mut (), at, block) }
    }
}

impl Stream for Residual {
    #[inline(always)]
    fn meet<const SIDES: usize>(self, known: Squares, at: Place<SIDES>, eps: f32) -> f32 {
        if at.warp == 0 {
            known.inverse_rms(at.columns, eps)
        } else {
            0.0
        }
    }

    #[inline(always)]
    fn scale<const SIDES: usize>(self, met: f32, _at: Place<SIDES>, _eps: f32) -> f32 {
        met
    }
}

/// What a warp knows of a stream whose last addend is apart.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    /// Σ y², on its way.
    addend: Squares,
    /// Σ x'² of the lane's columns.
    squares: f32,
}

impl Vector for Apart {
    type Known = Sum;

    /// Gains come from memory, and are the only thing that is there before the wait.
    #[inline(always)]
    fn expect<const SIDES: usize>(self, at: Place<SIDES>, first: u32) {
        let column = 256 * first + 8 * at.lane;
        if column < at.columns {
            global::prefetch_l2(self.post.gain.as_ptr().wrapping_add(column as usize));
            global::prefetch_l2(self.gain.as_ptr().wrapping_add(column as usize));
        }
    }

    #[inline(always)]
    unsafe fn known<const SIDES: usize>(self, at: Place<SIDES>) -> Sum {
        Sum {
            // SAFETY: the caller's.
            addend: unsafe { self.post.y.squares(at.columns, at.lane) }.gathered(),
            squares: 0.0,
        }
    }

    #[inline(always)]
    unsafe fn columns<const SIDES: usize>(self, known: &mut Sum, at: Place<SIDES>, block: u32) -> Columns {
        let columns = [0, 1].map(|v: u32| 256 * block + 128 * v + 4 * at.lane);
        // Lanes behind the last column read its vector, and have zeros.
        let from = columns.map(|column| column.min(at.columns - 4) as usize);
        let load = |vector: DevicePtr<f32>| {
            // SAFETY: the caller's; the vectors begin at multiples of 4 columns.
            from.map(|from| unsafe { global::load(vector.as_ptr().add(from).cast::<F32x4>()) }.0)
        };
        let [x, y, after, gain] = [self.x, self.post.y.x, self.post.gain, self.gain].map(load);
        let scale = known.addend.inverse_rms(at.columns, self.post.eps);
        let mut gained = [F32x4([0.0; 4]); 2];
        unroll!(for V in 0..2 {
            let (there, mut sum) = (columns[V] < at.columns, [0.0; 4]);
            unroll!(for K in 0..4 {
                let full = float::fma(y[V][K] * scale, after[V][K], x[V][K]);
                sum[K] = if there { full } else { 0.0 };
                known.squares = float::fma(sum[K], sum[K], known.squares);
                gained[V].0[K] = sum[K] * gain[V][K];
            });
            if there && thread::block_idx_x() == block && at.warp < at.warps {
                // SAFETY: the sum's vector, which this warp alone writes.
                unsafe { global::store(self.to.as_mut_ptr().add(from[V]).cast::<F32x4>(), F32x4(sum)) };
            }
        });
        Columns::of(gained)
    }
}

impl Stream for Apart {
    #[inline(always)]
    fn meet<const SIDES: usize>(self, known: Sum, at: Place<SIDES>, _eps: f32) -> f32 {
        let half = sum_of_16(known.squares);
        let all = half + warp::shuffle_xor(half, 16);
        if at.warp < at.warps && at.lane == 0 {
            at.squares().store(at.warp, all);
        }
        0.0
    }

    #[inline(always)]
    fn scale<const SIDES: usize>(self, _met: f32, at: Place<SIDES>, eps: f32) -> f32 {
        let part = if at.lane < at.warps {
            at.squares().load(at.lane)
        } else {
            0.0
        };
        // No more warps have a matrix than a half has lanes.
        let sum = sum_of_16(part);
        float::rsqrt_approx(float::fma(sum, float::rcp_approx(at.columns as f32), eps))
    }
}
