//! The residual stream between launches.
//!
//! A norm needs the whole stream twice: for `rms(x)` and for `x ∘ g`. The launch that writes the stream knows the next
//! norm's gains before it waits, and the sum of squares of the 16 rows that it holds; what it leaves saves every block of
//! the next launches a vector of gains, which would come from memory while nothing hides it, and the sum of all squares.
//!
//! **Launch**: [`enter`], where the stream was written by something else: an embedding, a prompt's last token.

use cuda_std::prelude::*;
use cuda_std::unroll::stepped;

/// The stream of one token, `columns` long, a multiple of 256.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Residual {
    /// x, f32.
    pub x: DevicePtr<f32>,
    /// `x ∘ g`, f32, with the gains of the norm that comes next.
    pub gained: DevicePtr<f32>,
    /// Σ x² of every 16 columns, f32.
    pub squares: DevicePtr<f32>,
}

impl Residual {
    /// Writes 16 columns from `16 · group`: lane `l` and lane `l + 16` bring column `l`, and its gain. All lanes of the
    /// warp call this together.
    ///
    /// # Safety
    /// The stream has the columns.
    #[inline(always)]
    pub(crate) unsafe fn store(&self, group: u32, lane: u32, x: f32, gain: f32) {
        let at = (16 * group + (lane & 15)) as usize;
        // SAFETY: the caller's.
        unsafe {
            global::store_if(lane < 16, self.x.as_mut_ptr().add(at), x);
            global::store_if(lane < 16, self.gained.as_mut_ptr().add(at), x * gain);
            let squares = sum_of_16(x * x);
            global::store_if(lane == 0, self.squares.as_mut_ptr().add(group as usize), squares);
        }
    }

    /// Sends for the lane's share of Σ x², behind the wait; nothing waits for it yet.
    ///
    /// # Safety
    /// The stream is `columns` long.
    #[inline(always)]
    pub(crate) unsafe fn squares(&self, columns: u32, lane: u32) -> Squares {
        let from = self.squares.as_ptr().cast::<F32x4>();
        let vectors = columns / 64;
        let mut squares = Squares {
            from,
            vectors,
            lane,
            first: F32x4([0.0; 4]),
        };
        if lane < vectors {
            // SAFETY: the caller's: a vector for every 64 columns.
            squares.first = unsafe { global::load(from.add(lane as usize)) };
        }
        squares
    }
}

/// A lane's share of Σ x² on its way.
#[derive(Clone, Copy)]
pub(crate) struct Squares {
    from: *const F32x4,
    vectors: u32,
    lane: u32,
    /// The lane's first vector; streams of up to 2,048 columns have no other.
    first: F32x4,
}

impl Squares {
    /// Of a warp that does not ask.
    pub const NONE: Self = Self {
        from: core::ptr::null(),
        vectors: 0,
        lane: 0,
        first: F32x4([0.0; 4]),
    };

    /// The same with all the lane's vectors added up, where the first ones are waited for anyway: what finds the root then has
    /// no loop to jump over.
    #[inline(always)]
    pub fn gathered(mut self) -> Self {
        let mut at = self.lane + 32;
        while at < self.vectors {
            // SAFETY: there is a vector for every 64 columns.
            let more = unsafe { global::load(self.from.add(at as usize)) };
            unroll!(for K in 0..4 {
                self.first.0[K] += more.0[K];
            });
            at = stepped(at + 32);
        }
        self.vectors = 0;
        self
    }

    /// The lane's share but for its first vector.
    #[inline(always)]
    fn rest(&self) -> f32 {
        let (mut sum, mut at) = (0.0, self.lane + 32);
        while at < self.vectors {
            // SAFETY: there is a vector for every 64 columns.
            let F32x4([a, b, c, d]) = unsafe { global::load(self.from.add(at as usize)) };
            sum += (a + b) + (c + d);
            at = stepped(at + 32);
        }
        sum
    }

    /// 1 / rms of a stream of `columns`. All lanes of the warp call this together.
    #[inline(always)]
    pub fn inverse_rms(self, columns: u32, eps: f32) -> f32 {
        let F32x4([a, b, c, d]) = self.first;
        let mut sum = (a + b) + (c + d);
        if self.vectors > 32 {
            sum += self.rest();
        }
        sum = sum_of_4(sum_of_4(sum, 8), 2);
        sum += warp::shuffle_xor(sum, 1);
        float::rsqrt_approx(float::fma(sum, float::rcp_approx(columns as f32), eps))
    }
}

/// The sum over the half of the warp that the lane is in. All lanes of the warp call this together.
#[inline(always)]
pub(crate) fn sum_of_16(part: f32) -> f32 {
    sum_of_4(sum_of_4(part, 4), 1)
}

/// The sum over four lanes `step` apart, the same in each: three exchanges at once take less time than two in turn.
#[inline(always)]
fn sum_of_4(part: f32, step: u32) -> f32 {
    let other = |k: u32| warp::shuffle_xor(part, k * step);
    let (first, second, third) = (other(1), other(2), other(3));
    (part + first) + (second + third)
}

/// Threads of a block of [`decode_residual`], a column each.
const THREADS: u32 = 128;

/// `x ∘ gain` and the sums of squares of a stream that is there.
///
/// Prepare it with [`enter`].
///
/// # Safety
/// The arguments of a launch that [`enter`] prepared.
#[kernel(pdl)]
pub unsafe fn decode_residual(stream: Residual, gain: *const f32) {
    let column = (thread::block_idx_x() * THREADS + thread::thread_idx_x()) as usize;
    // SAFETY: the launch has a thread for each column.
    unsafe {
        let gain = global::load(gain.add(column));
        pdl::launch_dependents();
        pdl::wait();
        let x = global::load(stream.x.as_ptr().add(column));
        global::store(stream.gained.as_mut_ptr().add(column), x * gain);
        let squares = sum_of_16(x * x);
        if column.is_multiple_of(16) {
            global::store(stream.squares.as_mut_ptr().add(column / 16), squares);
        }
    }
}

/// The launch that completes a stream of `columns` columns, of which x is there, for a norm of these gains.
///
/// # Errors
/// Columns that are no multiple of 256.
#[cfg(not(target_arch = "nvptx64"))]
pub fn enter(
    stream: Residual,
    gain: DevicePtr<f32>,
    columns: u32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("decode_residual", columns as usize, 256)?;
    let config = cuda_std::launch::LaunchConfig::new(columns / THREADS, THREADS).pdl(true);
    Ok(decode_residual::prepare(config, stream, gain))
}
