//! Router logits, added up by the blocks of the launch that makes the residual stream.
//!
//! A block that knows 16 columns of `x ∘ g` adds their share of every logit `w_e · (x ∘ g)`; a launch of its own would
//! be one more wait in every layer. The sums are integers, so that the order in which blocks come does not matter: one is
//! 2³², a share is kept under 2²¹ (a working model's is a hundred-thousandth of that), and one step is less than the
//! rounding of an f32 sum. The norm's factor comes with the softmax: it changes no order.
//!
//! Additions to one line of memory come one after the other, and the launch has not ended before the last has: so there
//! are [`COPIES`] sums of an expert, a block adds to one of them, and who reads adds them up.
//!
//! **Bytes**: `4 · experts · columns`, the router in f32 as in the file.

use super::choices::Choices;
use super::topk::key;
use cuda_std::prelude::*;
use cuda_std::unroll::stepped;

/// Sums of an expert: four cost a launch of 128 blocks 0.25 µs, one 1.0, and more save nothing.
pub const COPIES: usize = 4;

/// What one is.
const ONE: f32 = 4_294_967_296.0;
/// A block's share at most.
const MOST: f32 = (1u32 << 21) as f32;

/// A layer's routing: what the router says of each expert, and which were chosen.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Routing {
    /// [`COPIES`] sums for each expert, [`Self::words`] in all, 16-byte aligned.
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

    /// Words of the sums of `experts` experts.
    #[must_use]
    pub const fn words(experts: usize) -> usize {
        COPIES * experts.next_multiple_of(4)
    }

    /// Where copy `copy` of the sum of `expert` lies: of each four experts the first two lie in the first half and the
    /// others in the second, so that a warp that reads four a lane reads whole lines.
    #[inline(always)]
    const fn place(experts: u32, copy: u32, expert: u32) -> usize {
        let length = experts.next_multiple_of(4);
        (copy * length + expert / 2 % 2 * (length / 2) + expert / 4 * 2 + expert % 2) as usize
    }

    /// The sum of `expert` among the words of `experts` of them.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn sum(words: &[u64], experts: u32, expert: u32) -> f32 {
        let copies = (0..COPIES as u32).map(|copy| words[Self::place(experts, copy, expert)]);
        value(copies.fold(0, u64::wrapping_add))
    }

    /// Words whose first copies have these sums.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn words_of(sums: &[f32]) -> Vec<u64> {
        let mut words = vec![0; Self::words(sums.len())];
        for (expert, sum) in sums.iter().enumerate() {
            let copy = expert % COPIES;
            words[Self::place(sums.len() as u32, copy as u32, expert as u32)] = word(*sum);
        }
        words
    }

    /// Begins a layer: sums and words are zero. The threads of one block call this together, behind the wait.
    ///
    /// # Safety
    /// No other launch uses them meanwhile.
    #[inline(always)]
    pub(super) unsafe fn clear(self) {
        if self.experts == 0 {
            return;
        }
        let mut word = thread::thread_idx_x();
        // SAFETY: the caller's; there are as many words.
        unsafe {
            if word < 32 {
                self.choices.clear(word);
            }
            while (word as usize) < Self::words(self.experts as usize) {
                global::store(self.sums.as_mut_ptr().add(word as usize), 0u64);
                word = stepped(word + thread::block_dim_x());
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
        let mut sums = [0u64; 4];
        unroll!(for COPY in 0..4 {
            let at = |expert| {
                let from = self
                    .sums
                    .as_ptr()
                    .wrapping_add(Self::place(self.experts, COPY as u32, expert));
                // SAFETY: the caller's; the experts exist.
                let U32x4([a, b, c, d]) = unsafe { global::load(from.cast::<U32x4>()) };
                [u64::from(b) << 32 | u64::from(a), u64::from(d) << 32 | u64::from(c)]
            };
            let ([a, b], [c, d]) = (at(4 * i), at(4 * i + 2));
            sums = [
                sums[0].wrapping_add(a),
                sums[1].wrapping_add(b),
                sums[2].wrapping_add(c),
                sums[3].wrapping_add(d),
            ];
        });
        sums.map(|sum| key(value(sum)))
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

    /// Shared memory for a block's share of the router: 16 columns of each expert, rows 16 bytes longer against bank
    /// conflicts.
    pub(super) const fn bytes(experts: u32) -> u32 {
        experts * Self::ROW
    }

    const ROW: u32 = 16 * 4 + 16;

    /// Sends for the block's 16 columns, before the wait. All threads of the block call this together, and
    /// [`arrived`](Self::arrived) before they meet.
    ///
    /// # Safety
    /// The router has a column for each of the launch's rows, `room` has [`bytes`](Self::bytes).
    #[inline(always)]
    pub(super) unsafe fn send(self, room: Shared<u8>) {
        let (length, first) = (16 * thread::grid_dim_x() as usize, 16 * thread::block_idx_x());
        let mut item = thread::thread_idx_x();
        while item < 4 * self.routing.experts {
            let (expert, quarter) = (item / 4, item & 3);
            let from = expert as usize * length + (first + 4 * quarter) as usize;
            // SAFETY: the caller's; the expert exists.
            unsafe {
                let to = room.address_of(expert * Self::ROW + 16 * quarter);
                copy::async_16(to, self.weights.as_ptr().wrapping_add(from).cast());
            }
            item = stepped(item + thread::block_dim_x());
        }
        copy::commit();
    }

    /// Waits for what the thread sent for.
    #[inline(always)]
    pub(super) fn arrived(self) {
        copy::wait::<0>();
    }

    /// Warps that have experts to add to.
    #[inline(always)]
    pub(super) fn warps(self) -> u32 {
        self.routing.experts.div_ceil(32)
    }

    /// Whether a warp has experts to add to.
    #[inline(always)]
    pub(super) fn takes(self, warp: u32) -> bool {
        32 * warp < self.routing.experts
    }

    /// Adds the block's share of every sum, an expert a thread: lane `l` brings column `l % 16` of the block's `x ∘ g`. All
    /// lanes of each warp that [`takes`](Self::takes) call this together, behind the barrier.
    ///
    /// # Safety
    /// As [`send`](Self::send); the routing has a sum for each expert.
    #[inline(always)]
    pub(super) unsafe fn add_share(self, gained: f32, room: Shared<u8>, lane: u32) {
        let copy = thread::block_idx_x() % COPIES as u32;
        let mut expert = thread::thread_idx_x();
        while expert - lane < self.routing.experts {
            let row = expert.min(self.routing.experts - 1) * Self::ROW;
            let mut share = [0.0; 4];
            unroll!(for Q in 0..4 {
                let F32x4(weights) = room.slice(row + 16 * Q as u32, 16).cast::<F32x4>().load(0);
                unroll!(for K in 0..4 {
                    share[Q] = float::fma(weights[K], warp::shuffle(gained, 4 * Q as u32 + K as u32), share[Q]);
                });
            });
            let share = (share[0] + share[1]) + (share[2] + share[3]);
            if expert < self.routing.experts {
                let at = Routing::place(self.routing.experts, copy, expert);
                // SAFETY: the caller's.
                unsafe { atomic::gpu::reduce_add(self.routing.sums.as_mut_ptr().add(at), word(share)) }
            }
            expert = stepped(expert + thread::block_dim_x());
        }
    }
}
