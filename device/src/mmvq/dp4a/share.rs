//! A lane's share of the 8-bit activations.

use crate::layout::activation::Narrow;
use cuda_std::prelude::*;

/// Two runs of 16 activations, each with its scale and scaled sum.
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// The quantised values of each run.
    pub quants: [[u32; 4]; 2],
    /// The value of one step in each run.
    pub d: [f32; 2],
    /// Half of d·Σq of the 32 columns that each run lies in: two lanes hold one such half each.
    pub half_sum: [f32; 2],
}

impl Share {
    /// Loads runs `first` and `second` (of 16 columns) of a record.
    ///
    /// # Safety
    /// `record` points to a whole [`Narrow`] record, aligned to 16 bytes; both runs are below 16.
    #[inline(always)]
    pub unsafe fn load(record: *const u8, first: u32, second: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the record.
        let run = |i: u32| unsafe { global::load(record.add(16 * i as usize).cast::<U32x4>()).0 };
        // SAFETY: as above.
        let scale =
            |i: u32| unsafe { global::load(record.add(Narrow::SCALES + 8 * (i / 2) as usize).cast::<F32x2>()).0 };
        let (a, b) = (scale(first), scale(second));
        Self {
            quants: [run(first), run(second)],
            d: [a[0], b[0]],
            half_sum: [0.5 * a[1], 0.5 * b[1]],
        }
    }
}
