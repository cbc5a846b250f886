//! Router logits, added up by the blocks of the launch that makes the residual stream.
//!
//! A block that knows 16 columns of `x ∘ g` adds their share of every logit `w_e · (x ∘ g)`; a launch of its own would
//! be one more wait in every layer. The sums are integers, so that the order in which blocks come does not matter: one is
//! 2³², a share is kept under 2²¹ (a working model's is a hundred-thousandth of that), and one step is less than the
//! rounding of an f32 sum. The norm's factor comes with the softmax: it changes no order.
//!
//! **Bytes**: `4 · experts · columns`, the router in f32 as in the file.

use super::choices::Choices;
use super::topk::key;
use cuda_std::prelude::*;
use cuda_std::unroll::rolled;

/// What one is.
const ONE: f32 = 4_294_967_296.0;
/// A block's share at most.
const MOST: f32 = (1u32 << 21) as f32;

/// A layer's routing: what the router says of each expert, and which were chosen.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Routing {
    /// A sum for each expert, 16-byte aligned.
    pub sums: DevicePtr<u64>,
    /// The chosen ones.
    pub choices: Choices,
    /// Experts; none: there is nothing to route.
    pub experts: u32,
    /// Zero; keeps the size a multiple of 8.
    pub reserved: u32,
}

impl Routing {
    /// No experts.
    pub const NONE: Self = Self {
        sums: DevicePtr::null(),
        choices: Choices::new(DevicePtr::null()),
        experts: 0,
        reserved: 0,
    };

    /// Begins a layer: sums and words are zero. The threads of one block call this together, behind the wait.
    ///
    /// # Safety
    /// No other launch uses them meanwhile.
    #[inline(always)]
    pub(super) unsafe fn clear(self) {
        if self.experts == 0 {
            return;
        }
        let mut expert = thread::thread_idx_x();
        // SAFETY: the caller's; there is a sum for each expert.
        unsafe {
            if expert < 32 {
                self.choices.clear(expert);
            }
            while expert < self.experts {
                global::store(self.sums.as_mut_ptr().add(expert as usize), 0u64);
                expert = rolled(expert + thread::block_dim_x());
            }
        }
    }

    /// The keys of experts `4i … 4i + 3`.
    ///
    /// # Safety
    /// The sums are complete.
    #[inline(always)]
    pub(super) unsafe fn keys(self, i: u32) -> [u32; 4] {
        if 4 * i >= self.experts {
            return [0; 4];
        }
        let from = self.sums.as_ptr().wrapping_add(4 * i as usize).cast::<U32x4>();
        // SAFETY: the caller's; the experts exist.
        let (U32x4([a, b, c, d]), U32x4([e, f, g, h])) = unsafe { (global::load(from), global::load(from.add(1))) };
        let of = |low: u32, high: u32| key(value(u64::from(high) << 32 | u64::from(low)));
        [of(a, b), of(c, d), of(e, f), of(g, h)]
    }
}

/// The sum's word of a share, or of a whole sum.
#[inline(always)]
pub(crate) fn word(share: f32) -> u64 {
    (float::max(float::min(share, MOST), -MOST) * ONE) as i64 as u64
}

/// The value of a sum's word.
#[inline(always)]
pub(crate) fn value(word: u64) -> f32 {
    word as i64 as f32 * (1.0 / ONE)
}

/// A router, and where its sums go.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Router {
    /// A row for each expert, as long as the residual stream, 16-byte aligned.
    pub weights: DevicePtr<f32>,
    /// The layer's routing.
    pub routing: Routing,
}

impl Router {
    /// No router.
    pub const NONE: Self = Self {
        weights: DevicePtr::null(),
        routing: Routing::NONE,
    };

    /// Four of the block's 16 columns of an expert: item `4 · expert + quarter`; zero past the end.
    ///
    /// # Safety
    /// The router has a column for each of the launch's rows.
    #[inline(always)]
    unsafe fn item(self, item: u32) -> F32x4 {
        if item >= 4 * self.routing.experts {
            return F32x4([0.0; 4]);
        }
        let length = 16 * thread::grid_dim_x() as usize;
        let at = (item / 4) as usize * length + (16 * thread::block_idx_x() + 4 * (item & 3)) as usize;
        // SAFETY: the caller's; the expert exists.
        unsafe { global::load_once(self.weights.as_ptr().wrapping_add(at).cast()) }
    }

    /// Sends for the thread's first item, before the wait.
    ///
    /// # Safety
    /// As [`add_share`](Self::add_share).
    #[inline(always)]
    pub(super) unsafe fn early(self) -> F32x4 {
        // SAFETY: the caller's.
        unsafe { self.item(thread::thread_idx_x()) }
    }

    /// Adds the block's share of every sum: lane `l` brings column `l % 16` of the block's `x ∘ g`, `early` is what the
    /// thread sent for. All threads of the block call this together.
    ///
    /// # Safety
    /// The router has a column for each of the launch's rows, the routing a sum for each expert.
    #[inline(always)]
    pub(super) unsafe fn add_share(self, gained: f32, early: F32x4, lane: u32) {
        let (mut item, mut weights) = (thread::thread_idx_x(), early);
        while item - lane < 4 * self.routing.experts {
            let mut share = 0.0;
            unroll!(for K in 0..4 {
                share = float::fma(weights.0[K], warp::shuffle(gained, 4 * (lane & 3) + K as u32), share);
            });
            share += warp::shuffle_xor(share, 1);
            share += warp::shuffle_xor(share, 2);
            let expert = item / 4;
            // SAFETY: the caller's.
            unsafe {
                if lane & 3 == 0 && expert < self.routing.experts {
                    atomic::gpu::reduce_add(self.routing.sums.as_mut_ptr().add(expert as usize), word(share));
                }
                item = rolled(item + thread::block_dim_x());
                weights = self.item(item);
            }
        }
    }
}
