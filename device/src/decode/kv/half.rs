//! Caches of 16-bit floats.

use super::{Corner, Encoded, KvFormat, KvType, Place, masks};
use ::half::{bf16, f16};
use cuda_std::half2::{Bf16x2, F16x2};
use cuda_std::prelude::*;

macro_rules! half_type {
    ($(#[$doc:meta])* $name:ident, $half:ident, $pair:ident, $parts:literal, $encode:path, $decode:path, $mma:path) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl KvType for $name {
            const FORMAT: KvFormat = KvFormat::$name;
            const WEIGHT_PARTS: usize = $parts;
            /// Keys: `2c + j`; values: `m`.
            type Batch = [U32x4; 8];
            const EMPTY: Self::Batch = [U32x4([0; 4]); 8];

            #[inline(always)]
            unsafe fn load<const HD: u32>(head: *const u8, chunk: u32, at: Corner, b: u32) -> Self::Batch {
                let first = (chunk * (HD / 16) + 8 * b) * 32 + at.lane();
                let from = head.cast::<U32x4>().wrapping_add(first as usize);
                let mut batch = Self::EMPTY;
                unroll!(for I in 0..8 {
                    if 8 * b + (I as u32) < HD / 16 {
                        // SAFETY: dims and tokens lie in the head.
                        batch[I] = unsafe { global::load_stream(from.add(32 * I)) };
                    }
                });
                batch
            }

            #[inline(always)]
            fn piece(batch: &Self::Batch, i: usize) -> [u32; 4] {
                batch[i].0
            }

            #[inline(always)]
            fn keys(batch: &Self::Batch, c: usize, j: usize) -> [u32; 4] {
                batch[2 * c + j].0
            }

            #[inline(always)]
            fn values(batch: &Self::Batch, m: usize) -> [u32; 4] {
                batch[m].0
            }

            #[inline(always)]
            fn clip(batch: &mut Self::Batch, at: Corner, valid: i32) {
                let [low, high] = masks(at, valid);
                unroll!(for M in 0..8 {
                    let v = batch[M].0;
                    batch[M] = U32x4([v[0] & low, v[1] & low, v[2] & high, v[3] & high]);
                });
            }

            #[inline(always)]
            fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
                $mma(a, b, c)
            }

            #[inline(always)]
            fn split(x: f32) -> [u16; 2] {
                let high = $encode(x);
                [high.to_bits(), $encode(x - $decode(high)).to_bits()]
            }

            #[inline(always)]
            fn pack(a: f32, b: f32) -> ([u32; 2], f32) {
                let high = $pair::from_f32(a, b);
                let [u, v] = high.to_f32();
                if $parts == 1 {
                    return ([high.0, 0], u + v);
                }
                let low = $pair::from_f32(a - u, b - v);
                let [x, y] = low.to_f32();
                ([high.0, low.0], (u + v) + (x + y))
            }

            #[inline(always)]
            fn encode(x: f32) -> Encoded {
                let half = $encode(x);
                Encoded {
                    bits: half.to_bits(),
                    scale: 0,
                    value: $decode(half),
                }
            }

            #[inline(always)]
            unsafe fn write(head: *mut u8, place: Place, _dim: u32, x: Encoded) {
                // SAFETY: the caller's.
                unsafe { global::store(head.add(place.value as usize).cast(), x.bits) }
            }

            #[inline(always)]
            unsafe fn read(head: *const u8, place: Place) -> f32 {
                // SAFETY: the caller's.
                $decode($half::from_bits(unsafe { global::load(head.add(place.value as usize).cast()) }))
            }
        }
    };
}

half_type!(
    /// Keys and values in f16.
    F16, f16, F16x2, 1, half2::f32_to_f16, half2::f16_to_f32, mma::m16n8k16_f16
);
half_type!(
    /// Keys and values in bf16, which has 8 bits of precision: a weight of the softmax is two of them.
    Bf16, bf16, Bf16x2, 2, half2::f32_to_bf16, half2::bf16_to_f32, mma::m16n8k16_bf16
);
