//! A cache of 8-bit values with a scale for every 32 dims of a token, as the tensor type of that name has them.
//!
//! The products are those of f16: an i8 is an f16 exactly. The scales of keys multiply what 32 dims add to a score; those
//! of values multiply the weights of their tokens, in f16.

use super::{BLOCK, Corner, Encoded, F16, KvFormat, KvType, Place, masks};
use crate::num;
use cuda_std::dot::permute_bytes;
use cuda_std::half2::F16x2;
use cuda_std::prelude::*;

/// Keys and values in q8_0.
#[derive(Clone, Copy, Debug)]
pub struct Q8_0;

/// A lane's part of a batch.
#[derive(Clone, Copy)]
pub struct Batch {
    /// Keys: by 32 dims, two tokens each; values: by 32 dims.
    quants: [U32x4; 4],
    /// Four tokens' scales, two words for every 32 dims.
    scales: [U32x4; 2],
}

impl Batch {
    /// The scales of dims `32c …` of tokens `8j + 2t` and `8j + 2t + 1`.
    #[inline(always)]
    fn scale(&self, c: usize, j: usize) -> F16x2 {
        F16x2(self.scales[c / 2].0[2 * (c % 2) + j])
    }
}

/// Pieces of 16 bytes of a chunk.
#[inline(always)]
const fn pieces<const HD: u32>() -> u32 {
    KvFormat::Q8_0.chunk_bytes(HD) / 16
}

/// The four values of a word, to which 128 has been added, as two pairs of f16.
#[inline(always)]
fn widen(bytes: u32) -> [u32; 2] {
    // 1024 + u is the f16 with u in its last bits, and u the value plus 128.
    let offset = F16x2(0x6480_6480);
    [
        F16x2(permute_bytes(bytes, 0x6464_6464, 0x4140)).sub(offset).0,
        F16x2(permute_bytes(bytes, 0x6464_6464, 0x4342)).sub(offset).0,
    ]
}

/// `x / 127`, correctly rounded: a product and one correction.
#[inline(always)]
fn over_127(x: f32) -> f32 {
    let near = x * (1.0 / 127.0);
    float::fma(float::fma(-near, 127.0, x), 1.0 / 127.0, near)
}

/// `1 / x`, correctly rounded or the neighbour, without the branch for what is nearly nothing: of that it makes a NaN.
#[inline(always)]
fn inverse_of(x: f32) -> f32 {
    let near = float::rcp_approx(x);
    float::fma(near, float::fma(-x, near, 1.0), near)
}

impl KvType for Q8_0 {
    const FORMAT: KvFormat = KvFormat::Q8_0;
    const WEIGHT_PARTS: usize = 1;
    type Batch = Batch;
    const EMPTY: Batch = Batch {
        quants: [U32x4([0; 4]); 4],
        scales: [U32x4([0; 4]); 2],
    };

    #[inline(always)]
    unsafe fn load<const HD: u32>(head: *const u8, chunk: u32, at: Corner, b: u32) -> Batch {
        let chunk = chunk * pieces::<HD>();
        let (first, scales) = (chunk + 128 * b + at.lane(), chunk + HD + at.t * (HD / 64) + 2 * b);
        let from = head.cast::<U32x4>();
        let (from, scales) = (from.wrapping_add(first as usize), from.wrapping_add(scales as usize));
        let mut batch = Self::EMPTY;
        unroll!(for C in 0..4 {
            if 4 * b + (C as u32) < HD / 32 {
                // SAFETY: tokens and dims lie in the head.
                batch.quants[C] = unsafe { global::load_stream(from.add(32 * C)) };
            }
        });
        unroll!(for I in 0..2 {
            if 4 * b + 2 * (I as u32) < HD / 32 {
                // SAFETY: the scales lie behind the head's values.
                batch.scales[I] = unsafe { global::load_stream(scales.add(I)) };
            }
        });
        batch
    }

    #[inline(always)]
    fn piece(batch: &Batch, i: usize) -> [u32; 4] {
        batch.quants[i].0
    }

    #[inline(always)]
    fn keys(batch: &Batch, c: usize, j: usize) -> [u32; 4] {
        let piece = batch.quants[c].0;
        let signs = 0x8080_8080;
        let ([a, b], [c, d]) = (widen(piece[2 * j] ^ signs), widen(piece[2 * j + 1] ^ signs));
        [a, b, c, d]
    }

    #[inline(always)]
    fn key_scales(batch: &Batch, c: usize, j: usize) -> [f32; 2] {
        batch.scale(c, j).to_f32()
    }

    #[inline(always)]
    fn values(batch: &Batch, m: usize) -> [u32; 4] {
        let piece = batch.quants[m / 2].0;
        let ([a, b], [c, d]) = (widen(piece[m % 2 * 2]), widen(piece[m % 2 * 2 + 1]));
        [a, b, c, d]
    }

    #[inline(always)]
    fn weighted(batch: &Batch, c: usize, weights: [u32; 2]) -> [u32; 2] {
        [
            F16x2(weights[0]).mul(batch.scale(c, 0)).0,
            F16x2(weights[1]).mul(batch.scale(c, 1)).0,
        ]
    }

    /// Any i8 is a number: only scales can be something else.
    #[inline(always)]
    fn clip(batch: &mut Batch, at: Corner, valid: i32) {
        let [low, high] = masks(at, valid);
        unroll!(for I in 0..2 {
            let v = batch.scales[I].0;
            batch.scales[I] = U32x4([v[0] & low, v[1] & high, v[2] & low, v[3] & high]);
        });
    }

    #[inline(always)]
    fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        F16::mma(a, b, c)
    }

    #[inline(always)]
    fn split(x: f32) -> [u16; 2] {
        F16::split(x)
    }

    #[inline(always)]
    fn pack(a: f32, b: f32) -> ([u32; 2], f32) {
        F16::pack(a, b)
    }

    /// As the reference quantiser: the scale is rounded to f16 behind the division by it, halves go away from zero.
    #[inline(always)]
    fn encode(x: f32) -> Encoded {
        let largest = f32::from_bits(warp::redux_max(warp::FULL, x.to_bits() & 0x7fff_ffff));
        let d = over_127(largest);
        let inverse = inverse_of(d);
        let inverse = if inverse <= f32::MAX { inverse } else { 0.0 };
        let scaled = x * inverse;
        let q = float::to_i32(scaled + f32::from_bits(0x3f00_0000 | (scaled.to_bits() & 0x8000_0000)));
        let scale = half2::f32_to_f16(d).to_bits();
        Encoded {
            bits: u16::from(q as u8),
            scale,
            value: float::from_i32(q) * num::half(u32::from(scale)),
        }
    }

    #[inline(always)]
    unsafe fn write(head: *mut u8, place: Place, dim: u32, x: Encoded) {
        // SAFETY: the caller's.
        unsafe {
            global::store(head.add(place.value as usize), x.bits as u8 ^ place.offset);
            if dim.is_multiple_of(BLOCK) {
                global::store(head.add(place.scale as usize).cast(), x.scale);
            }
        }
    }

    #[inline(always)]
    unsafe fn read(head: *const u8, place: Place) -> f32 {
        // SAFETY: the caller's.
        let (q, scale) = unsafe {
            (
                (global::load(head.add(place.value as usize)) ^ place.offset) as i8,
                global::load(head.add(place.scale as usize).cast::<u16>()),
            )
        };
        float::from_i32(i32::from(q)) * num::half(u32::from(scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_127th_is_rounded_once() {
        let mut x = 1e-30f32;
        while x < 1e30 {
            assert_eq!(over_127(x), x / 127.0, "{x}");
            x *= 1.000_37;
        }
        assert_eq!(over_127(0.0), 0.0);
    }

    #[test]
    fn every_byte_widens_to_its_value() {
        for word in (0..=u32::from(u16::MAX)).map(|low| low | low.rotate_left(20)) {
            let [a, b] = widen(word);
            let values = [F16x2(a).to_f32(), F16x2(b).to_f32()].concat();
            let bytes = word.to_le_bytes().map(|byte| f32::from(byte) - 128.0);
            assert_eq!(values, bytes);
        }
    }
}
