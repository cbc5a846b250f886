//! Rows of activations, normalised and split into the [`Record`]s that the prompt's products read.
//!
//! For each row: `v = x ∘ g` (`x` where there are no gains), records of `2^e · v`, and the pair
//! `(2^-e · r, r)` with `r = 1 / rms(x)` (1 without gains): the norm is a factor of what is computed from the records.
//!
//! **Bytes**: a row read (the second time from L1), 4.25 bytes a column written. **Shape of the work**: a block of four
//! warps a row, a record a warp at a time, a lane the 8 columns whose words it writes.
//!
//! **Launch**: [`split`].

use super::record::Record;
use cuda_std::prelude::*;

/// Warps of a block.
pub(super) const WARPS: u32 = 4;

/// Eight columns of a lane: 32j + 4t … +3 and 16 further, lane = 4j + t.
pub(super) type Eight = [f32; 8];

/// Loads the lane's columns of block `block` of the `columns` at `x`; zeros behind their end.
///
/// # Safety
/// `x` points to as many readable floats, a multiple of 32, 16-byte aligned.
#[inline(always)]
pub(super) unsafe fn eight(x: *const f32, block: u32, columns: u32, lane: u32) -> Eight {
    let first = 256 * block + 32 * (lane >> 2);
    if first >= columns {
        return [0.0; 8];
    }
    let at = x.wrapping_add((first + 4 * (lane & 3)) as usize);
    // SAFETY: the caller's; both vectors lie in the 32 floats from the first.
    let (a, b) = unsafe {
        (
            global::load(at.cast::<F32x4>()).0,
            global::load(at.add(16).cast::<F32x4>()).0,
        )
    };
    [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
}

/// A row as it is read.
#[derive(Clone, Copy)]
struct Row {
    x: *const f32,
    gain: *const f32,
    columns: u32,
    lane: u32,
}

impl Row {
    /// The lane's columns of block `block`: as they are, and times their gains.
    ///
    /// # Safety
    /// The row has its columns.
    #[inline(always)]
    unsafe fn load(self, block: u32) -> (Eight, Eight) {
        // SAFETY: the caller's.
        unsafe {
            let x = eight(self.x, block, self.columns, self.lane);
            if self.gain.is_null() {
                return (x, x);
            }
            let gain = eight(self.gain, block, self.columns, self.lane);
            let mut v = x;
            unroll!(for I in 0..8 {
                v[I] *= gain[I];
            });
            (x, v)
        }
    }
}

/// Sum of squares and largest magnitude of a row, the same in every thread of the block.
#[inline(always)]
pub(super) fn of_block(squares: f32, largest: f32, lane: u32, warp: u32) -> (f32, f32) {
    let parts: Shared<F32x2> = shared::dynamic(0, WARPS);
    let squares = warp::sum(squares);
    let largest = f32::from_bits(warp::redux_max(warp::FULL, largest.to_bits()));
    if lane == 0 {
        parts.store(warp, F32x2([squares, largest]));
    }
    thread::sync_threads();
    let (a, b, c, d) = (parts.load(0).0, parts.load(1).0, parts.load(2).0, parts.load(3).0);
    let largest = float::max(float::max(a[1], b[1]), float::max(c[1], d[1]));
    ((a[0] + b[0]) + (c[0] + d[0]), largest)
}

/// 2^e and 2^-e for a row whose largest magnitude is `largest`.
#[inline(always)]
pub(super) fn powers(largest: f32) -> (f32, f32) {
    let exponent = largest.to_bits() >> 23;
    let exponent = if exponent < 10 { 10 } else { exponent };
    (
        f32::from_bits((263 - exponent) << 23),
        f32::from_bits((exponent - 9) << 23),
    )
}

/// Two values as a pair of f16, and a pair of what that loses.
#[inline(always)]
fn pair(a: f32, b: f32) -> (half2::F16x2, half2::F16x2) {
    let high = half2::F16x2::from_f32(a, b);
    let [x, y] = high.to_f32();
    (high, half2::F16x2::from_f32(a - x, b - y))
}

/// Writes the lane's share of the record at `record`: `v` times `up`.
///
/// # Safety
/// `record` points to a whole writable record, 16-byte aligned. All lanes of the warp call this together.
#[inline(always)]
pub(super) unsafe fn store(record: *mut u8, v: Eight, up: f32, lane: u32) {
    let (mut high, mut low, mut sum) = ([0; 4], [0; 4], 0.0);
    unroll!(for I in 0..4 {
        // Word 2h + odd: columns 4h + odd and two further.
        let at = 4 * (I / 2) + I % 2;
        let (h, l) = pair(v[at] * up, v[at + 2] * up);
        let ([a, b], [c, d]) = (h.to_f32(), l.to_f32());
        sum += (a + b) + (c + d);
        (high[I], low[I]) = (h.0, l.0);
    });
    let (j, t) = (lane >> 2, lane & 3);
    let sum = sum + warp::shuffle_xor(sum, 1);
    let sum = sum + warp::shuffle_xor(sum, 2);
    // SAFETY: the caller's; all offsets lie within the record.
    unsafe {
        let at = record.add((64 * j + 16 * t) as usize);
        global::store(at.cast::<U32x4>(), U32x4(high));
        global::store(at.add(Record::LOW).cast::<U32x4>(), U32x4(low));
        if t == 0 {
            let (h, l) = pair(sum * (1.0 / 32.0), 0.0);
            let at = record.add(Record::sum_of(j as usize)).cast::<u16>();
            global::store(at, h.0 as u16);
            global::store(at.add(2), l.0 as u16);
        }
    }
}

/// Rows of activations, normalised and split into pairs of f16.
///
/// Prepare it with [`split`].
///
/// # Safety
/// The arguments of a launch that [`split`] prepared.
#[kernel(pdl)]
pub unsafe fn prefill_split(
    x: *const f32,
    gain: *const f32,
    records: *mut u8,
    factors: *mut F32x2,
    columns: u32,
    eps: f32,
) {
    let (lane, warp, index) = (
        warp::lane(),
        thread::thread_idx_x() / 32,
        thread::block_idx_x() as usize,
    );
    let blocks = columns.div_ceil(256);
    let row = Row {
        x: x.wrapping_add(index * columns as usize),
        gain,
        columns,
        lane,
    };
    pdl::wait();
    let (mut squares, mut largest) = (0.0, 0f32);
    let mut block = warp;
    // SAFETY: the launch has a block for each row.
    unsafe {
        while block < blocks {
            let (x, v) = row.load(block);
            unroll!(for I in 0..8 {
                squares = float::fma(x[I], x[I], squares);
                largest = float::max(largest, float::abs(v[I]));
            });
            block += WARPS;
        }
        let (squares, largest) = of_block(squares, largest, lane, warp);
        let (up, down) = powers(largest);
        let to = records.add(index * Record::whole_row_bytes(columns));
        let mut block = warp;
        while block < blocks {
            store(to.add(block as usize * Record::BYTES), row.load(block).1, up, lane);
            block += WARPS;
        }
        if thread::thread_idx_x() == 0 {
            let inverse = if gain.is_null() {
                1.0
            } else {
                float::rsqrt_approx(float::fma(squares, float::rcp(columns as f32), eps))
            };
            global::store(factors.add(index), F32x2([down * inverse, inverse]));
        }
    }
}

/// The launch for `rows` rows of `columns` columns; `gain` null for no norm; `records` of
/// [`Record::whole_row_bytes`] and `factors` one a row.
///
/// # Errors
/// No rows, or columns that are no multiple of 32.
#[cfg(not(target_arch = "nvptx64"))]
pub fn split(
    x: DevicePtr<f32>,
    gain: DevicePtr<f32>,
    records: DevicePtr<u8>,
    factors: DevicePtr<F32x2>,
    rows: u32,
    columns: u32,
    eps: f32,
) -> Result<cuda_std::launch::PreparedLaunch, crate::shape::ShapeError> {
    let columns = crate::shape::multiple("prefill_split", columns as usize, 32)?;
    let rows = crate::shape::count("prefill_split", "rows", rows as usize)?;
    let config = cuda_std::launch::LaunchConfig::new(rows, 32 * WARPS).shared(8 * WARPS);
    Ok(prefill_split::prepare(config, x, gain, records, factors, columns, eps))
}
