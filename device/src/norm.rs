//! Residual addition, RMS norm and quantisation of the activation, in one launch.
//!
//! **Computes** `s = x + r`, `v = gain·s / √(mean(s²) + ε)` over `columns` values, and gives v as f32, as 16-bit records
//! ([`Wide`]) or as 8-bit records ([`Narrow`]); s is stored too where it is asked for.
//! r may be null (no residual), `sum` may be null (not stored); the `quantize_*` kernels do the last step alone.
//!
//! **Moves** a few KB: 4 bytes a column of x, r and gain, the records, s.
//!
//! **Shape of work**: a block of 256 threads for each record of 256 columns. Every block sums the squares of the whole
//! vector (8 KB from L2) rather than wait for another block; then its first warp, eight columns a lane, makes the record.
//! The gain is loaded before the wait. So s must not be stored over x or r: other blocks still read them.
//!
//! **Launch**: [`config`]; columns a multiple of 32; PDL allowed.

use crate::layout::activation::{Narrow, RECORD_COLUMNS, Wide};
use crate::tile::Split;
use cuda_std::prelude::*;

/// Threads of a block.
const THREADS: u32 = 256;

/// Sizes of one norm.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Norm {
    /// Values of the vector, a multiple of 32.
    pub columns: u32,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// Where a lane's eight values go.
trait Sink {
    /// Stores the values of columns `record·256 + 8·lane` …; zeros past the vector's end. The warp calls this together.
    ///
    /// # Safety
    /// `out` has the record.
    unsafe fn store(out: *mut u8, record: u32, lane: u32, v: [f32; 8], columns: u32);
}

struct Plain;

impl Sink for Plain {
    #[inline(always)]
    unsafe fn store(out: *mut u8, record: u32, lane: u32, v: [f32; 8], columns: u32) {
        let column = record * RECORD_COLUMNS as u32 + 8 * lane;
        if column < columns {
            // SAFETY: the columns exist.
            unsafe { store_eight(out.cast(), column, v) }
        }
    }
}

impl Sink for Wide {
    #[inline(always)]
    unsafe fn store(out: *mut u8, record: u32, lane: u32, v: [f32; 8], _columns: u32) {
        // SAFETY: the record exists.
        unsafe { Split::new(v).store(out.add(record as usize * Self::BYTES), lane) }
    }
}

impl Sink for Narrow {
    #[inline(always)]
    unsafe fn store(out: *mut u8, record: u32, lane: u32, v: [f32; 8], _columns: u32) {
        let largest = quad_max(largest(v));
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let (mut words, mut sum) = ([0u32; 2], 0);
        unroll!(for K in 0..8 {
            let q = float::to_i32_round(v[K] * inverse);
            words[K / 4] |= (q as u32 & 255) << (8 * (K % 4));
            sum += q;
        });
        let pair = sum + warp::shuffle_xor(sum, 1);
        let sum = pair + warp::shuffle_xor(pair, 2);
        // SAFETY: the record exists.
        unsafe {
            let record = out.add(record as usize * Self::BYTES);
            global::store(record.add(8 * lane as usize).cast(), U32x2(words));
            if lane & 3 == 0 {
                let d = largest * (1.0 / 127.0);
                global::store(
                    record.add(Self::SCALES + 2 * lane as usize).cast(),
                    F32x2([d, d * sum as f32]),
                );
            }
        }
    }
}

/// The largest magnitude of eight values.
#[inline(always)]
fn largest(v: [f32; 8]) -> f32 {
    let mut largest = 0f32;
    unroll!(for K in 0..8 {
        largest = float::max(largest, float::abs(v[K]));
    });
    largest
}

/// The largest value of the four lanes that share 32 columns.
#[inline(always)]
fn quad_max(v: f32) -> f32 {
    let pair = float::max(v, warp::shuffle_xor(v, 1));
    float::max(pair, warp::shuffle_xor(pair, 2))
}

/// Eight values from `column` on; zeros past the vector's end.
#[inline(always)]
pub(crate) unsafe fn eight(x: *const f32, column: u32, columns: u32) -> [f32; 8] {
    if column >= columns {
        return [0.0; 8];
    }
    // SAFETY: the columns exist, and the vector is aligned to 16 bytes.
    unsafe {
        let at = x.add(column as usize).cast::<F32x4>();
        let ([a, b, c, d], [e, f, g, h]) = (global::load(at).0, global::load(at.add(1)).0);
        [a, b, c, d, e, f, g, h]
    }
}

#[inline(always)]
unsafe fn store_eight(out: *mut f32, column: u32, v: [f32; 8]) {
    // SAFETY: the caller's: the columns exist, and the vector is aligned to 16 bytes.
    unsafe {
        let at = out.add(column as usize).cast::<F32x4>();
        global::store(at, F32x4([v[0], v[1], v[2], v[3]]));
        global::store(at.add(1), F32x4([v[4], v[5], v[6], v[7]]));
    }
}

/// Eight values of x + r.
#[inline(always)]
unsafe fn residual_sum(x: *const f32, r: *const f32, column: u32, columns: u32) -> [f32; 8] {
    // SAFETY: the caller's: both vectors have `columns` values.
    let mut s = unsafe { eight(x, column, columns) };
    if !r.is_null() {
        // SAFETY: as above.
        let r = unsafe { eight(r, column, columns) };
        unroll!(for K in 0..8 {
            s[K] += r[K];
        });
    }
    s
}

/// The sum of squares of the whole of x + r, in every thread of the block, in a fixed order.
#[inline(always)]
unsafe fn square_sum(x: *const f32, r: *const f32, columns: u32) -> f32 {
    let (id, meeting) = (thread::thread_idx_x(), shared::dynamic::<f32>(0, THREADS / 32));
    let (mut column, mut sum) = (8 * id, 0f32);
    while column < columns {
        // SAFETY: the columns exist.
        let s = unsafe { residual_sum(x, r, column, columns) };
        unroll!(for K in 0..8 {
            sum = float::fma(s[K], s[K], sum);
        });
        column += 8 * THREADS;
    }
    sum = warp::sum(sum);
    if id & 31 == 0 {
        meeting.store(id / 32, sum);
    }
    thread::sync_threads();
    let of = |warp: u32| meeting.load(warp);
    ((of(0) + of(1)) + (of(2) + of(3))) + ((of(4) + of(5)) + (of(6) + of(7)))
}

#[inline(always)]
unsafe fn normalize<S: Sink>(x: *const f32, r: *const f32, gain: *const f32, norm: Norm, sum: *mut f32, out: *mut u8) {
    let (id, record, columns) = (thread::thread_idx_x(), thread::block_idx_x(), norm.columns);
    let column = record * RECORD_COLUMNS as u32 + 8 * id;
    let gain = if id < 32 {
        // SAFETY: the gain is a weight: nothing writes it.
        unsafe { eight(gain, column, columns) }
    } else {
        [0.0; 8]
    };
    pdl::launch_dependents();
    pdl::wait();
    // SAFETY: x and r have `columns` values.
    let squares = unsafe { square_sum(x, r, columns) };
    if id >= 32 {
        return;
    }
    // SAFETY: as above.
    let mut v = unsafe { residual_sum(x, r, column, columns) };
    if !sum.is_null() && column < columns {
        // SAFETY: sum has `columns` values too.
        unsafe { store_eight(sum, column, v) }
    }
    let scale = float::div(1.0, float::sqrt(squares / columns as f32 + norm.epsilon));
    unroll!(for K in 0..8 {
        v[K] = v[K] * scale * gain[K];
    });
    // SAFETY: out has the record.
    unsafe { S::store(out, record, id, v, columns) }
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $sink:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The launch follows [`config`]: x, gain, and r and sum unless null, have the norm's columns, out all records.
        #[kernel(pdl)]
        pub unsafe fn $name(x: *const f32, r: *const f32, gain: *const f32, norm: Norm, sum: *mut f32, out: *mut u8) {
            // SAFETY: the launch's contract.
            unsafe { normalize::<$sink>(x, r, gain, norm, sum, out) }
        }
    )*};
}

kernels! {
    /// Residual sum and RMS norm, to f32.
    norm_f32 = Plain;
    /// Residual sum and RMS norm, to 16-bit activations.
    norm_wide = Wide;
    /// Residual sum and RMS norm, to 8-bit activations.
    norm_narrow = Narrow;
}

#[inline(always)]
unsafe fn quantize<S: Sink>(x: *const f32, columns: u32, out: *mut u8) {
    let (lane, record) = (thread::thread_idx_x(), thread::block_idx_x());
    pdl::launch_dependents();
    pdl::wait();
    // SAFETY: x has `columns` values, out all records.
    unsafe {
        S::store(
            out,
            record,
            lane,
            eight(x, record * RECORD_COLUMNS as u32 + 8 * lane, columns),
            columns,
        )
    }
}

/// A vector as 16-bit activations.
///
/// # Safety
/// The launch follows [`quantize_config`]: x has `columns` values, out all records.
#[kernel(pdl)]
pub unsafe fn quantize_wide(x: *const f32, columns: u32, out: *mut u8) {
    // SAFETY: the launch's contract.
    unsafe { quantize::<Wide>(x, columns, out) }
}

/// A vector as 8-bit activations.
///
/// # Safety
/// The launch follows [`quantize_config`]: x has `columns` values, out all records.
#[kernel(pdl)]
pub unsafe fn quantize_narrow(x: *const f32, columns: u32, out: *mut u8) {
    // SAFETY: the launch's contract.
    unsafe { quantize::<Narrow>(x, columns, out) }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::{Norm, RECORD_COLUMNS, THREADS};
    use crate::shape::{ShapeError, multiple};
    use cuda_std::launch::LaunchConfig;

    /// The shape of a norm's launch.
    ///
    /// # Errors
    /// When the columns are no multiple of 32.
    pub fn config(norm: Norm) -> Result<LaunchConfig, ShapeError> {
        let columns = multiple("norm", norm.columns as usize, 32)?;
        let shared = THREADS / 32 * 4;
        Ok(LaunchConfig::new(columns.div_ceil(RECORD_COLUMNS as u32), THREADS)
            .shared(shared)
            .pdl(true))
    }

    /// The shape of a launch that quantises `columns` values.
    ///
    /// # Errors
    /// When the columns are no multiple of 32.
    pub fn quantize_config(columns: usize) -> Result<LaunchConfig, ShapeError> {
        let columns = multiple("quantize", columns, 32)?;
        Ok(LaunchConfig::new(columns.div_ceil(RECORD_COLUMNS as u32), 32).pdl(true))
    }

    /// s = x + r and v = gain·s / √(mean(s²) + ε) in f64.
    pub fn reference(x: &[f32], r: Option<&[f32]>, gain: &[f32], epsilon: f32) -> (Vec<f64>, Vec<f64>) {
        let r = |i: usize| r.map_or(0.0, |r| f64::from(r[i]));
        let s: Vec<f64> = x.iter().enumerate().map(|(i, x)| f64::from(*x) + r(i)).collect();
        let mean = s.iter().map(|s| s * s).sum::<f64>() / s.len() as f64;
        let scale = (mean + f64::from(epsilon)).sqrt().recip();
        let v = s.iter().zip(gain).map(|(s, g)| s * scale * f64::from(*g)).collect();
        (s, v)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::{config, quantize_config, reference};
