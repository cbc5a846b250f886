//! 256 activations of 16 bits, as the B operand of the tile product.

use crate::layout::activation::Wide;
use cuda_std::prelude::*;

/// What a lane holds of a record of 256 activations: see [`Wide`] for the layout.
#[derive(Clone, Copy)]
pub struct Activation {
    /// B fragment words r = 2s + h: sub-block `pair + 4s` of 32 columns, half h.
    pub words: [u32; 4],
    /// Sums of the 16-bit values of sub-blocks t and t + 4.
    pub sums: [i32; 2],
    /// Value of one step.
    pub scale: f32,
    /// Sums over 16 columns where a type asks for them ([`Tile::prepare`](super::Tile::prepare)).
    pub fine: [i32; 4],
}

impl Activation {
    /// Loads the lane's share of a record.
    ///
    /// # Safety
    /// `record` points to a whole [`Wide`] record, aligned to 16 bytes, that nothing writes any more.
    #[inline(always)]
    pub unsafe fn load(record: *const u8, lane: u32) -> Self {
        let t = lane as usize & 3;
        // SAFETY: the caller's; all offsets lie within the record.
        unsafe {
            let words = global::load(record.add(16 * lane as usize).cast::<U32x4>());
            let sums = record.add(Wide::SUMS).cast::<i32>();
            Self {
                words: words.0,
                sums: [global::load(sums.add(t)), global::load(sums.add(t + 4))],
                scale: global::load(record.add(Wide::SCALE).cast::<f32>()),
                fine: [0; 4],
            }
        }
    }

    /// A warp turns 256 floats into fragments: lane l brings columns 8l … 8l + 7. `scratch` is 512 bytes of shared
    /// memory of this warp alone; it may be used again after the next warp or block barrier.
    #[inline(always)]
    pub fn split(x: [f32; 8], scratch: Shared<u32>, lane: u32) -> Self {
        let split = Split::new(x);
        scratch.cast::<U32x2>().store(lane, U32x2(split.high));
        scratch.cast::<U32x2>().store(32 + lane, U32x2(split.low));
        let sum = split.sum_of_32();
        let t = lane & 3;
        let sums = [warp::shuffle(sum, 4 * t), warp::shuffle(sum, 16 + 4 * t)];
        warp::sync();
        let n = lane >> 2;
        let at = (n & 1) * 64 + (n >> 1) * 8 + t;
        let words = [
            scratch.load(at),
            scratch.load(at + 4),
            scratch.load(at + 32),
            scratch.load(at + 36),
        ];
        Self {
            words,
            sums,
            scale: split.scale,
            fine: [0; 4],
        }
    }
}

/// Eight activations of a lane, quantised with the warp's common scale.
#[derive(Clone, Copy)]
pub struct Split {
    /// High bytes of columns 8·lane … +3 and +4 … +7.
    pub high: [u32; 2],
    /// Low bytes of the same.
    pub low: [u32; 2],
    /// Sum of the lane's 16-bit values.
    pub sum: i32,
    /// Value of one step.
    pub scale: f32,
}

impl Split {
    /// Quantises the warp's 256 values: `q = round(x·32512 / max|x|)`, ties to even. All lanes call this together.
    #[inline(always)]
    pub fn new(x: [f32; 8]) -> Self {
        let largest = warp_largest(x);
        let inverse = if largest > 0.0 { Wide::MAX / largest } else { 0.0 };
        let mut split = Self {
            high: [0; 2],
            low: [0; 2],
            sum: 0,
            scale: largest * (1.0 / Wide::MAX),
        };
        unroll!(for K in 0..8 {
            let q = float::to_i32_round(x[K] * inverse);
            let low = q as i8 as i32;
            let high = (q - low) >> 8;
            split.high[K / 4] |= (high as u32 & 255) << (8 * (K % 4));
            split.low[K / 4] |= (low as u32 & 255) << (8 * (K % 4));
            split.sum += q;
        });
        split
    }

    /// The sum over the four lanes that share 32 columns. All lanes call this together.
    #[inline(always)]
    pub fn sum_of_32(&self) -> i32 {
        let pair = self.sum + warp::shuffle_xor(self.sum, 1);
        pair + warp::shuffle_xor(pair, 2)
    }

    /// Writes the warp's record.
    ///
    /// # Safety
    /// `record` points to a whole writable [`Wide`] record, aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn store(&self, record: *mut u8, lane: u32) {
        let sum = self.sum_of_32();
        // SAFETY: the caller's; all offsets lie within the record.
        unsafe {
            unroll!(for K in 0..2 {
                let at = record.add(Wide::byte_of(8 * lane as usize + 4 * K));
                global::store(at.cast::<u32>(), self.high[K]);
                global::store(at.add(Wide::LO).cast::<u32>(), self.low[K]);
            });
            if lane & 3 == 0 {
                global::store(record.add(Wide::SUMS + lane as usize).cast::<i32>(), sum);
            }
            if lane < 8 {
                let padded = if lane == 0 { self.scale.to_bits() } else { 0 };
                global::store(record.add(Wide::SCALE + 4 * lane as usize).cast::<u32>(), padded);
            }
        }
    }
}

/// The largest magnitude of the warp's values: the bits of non-negative floats order as integers.
#[inline(always)]
fn warp_largest(x: [f32; 8]) -> f32 {
    let mut largest = 0f32;
    unroll!(for K in 0..8 {
        largest = float::max(largest, float::abs(x[K]));
    });
    f32::from_bits(warp::redux_max(warp::FULL, largest.to_bits()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::floats;
    use cuda_std::emu::{Buffer, Emulator};
    use cuda_std::launch::LaunchConfig;

    /// What a lane holds, in words.
    const WORDS: usize = 7;

    #[inline(always)]
    unsafe fn put(a: Activation, out: *mut u32) {
        let [s0, s1] = a.sums.map(|s| s as u32);
        let [a0, a1, a2, a3] = a.words;
        for (i, word) in [a0, a1, a2, a3, s0, s1, a.scale.to_bits()].into_iter().enumerate() {
            // SAFETY: room for a lane's words.
            unsafe { global::store(out.add(i), word) }
        }
    }

    /// Splits 256 floats in a warp, and loads the record of the same values.
    #[kernel]
    pub unsafe fn probe(x: *const f32, record: *const u8, split: *mut u32, loaded: *mut u32) {
        let lane = warp::lane();
        let at = lane as usize * WORDS;
        // SAFETY: 256 floats, a whole record, room for the words of 32 lanes.
        unsafe {
            let x = core::array::from_fn(|i| global::load(x.add(8 * lane as usize + i)));
            put(Activation::split(x, shared::dynamic(0, 128), lane), split.add(at));
            put(Activation::load(record, lane), loaded.add(at));
        }
    }

    #[test]
    fn splitting_and_loading_give_the_same_fragments() {
        for seed in 0..8 {
            let x = floats(seed, 256, 3.0);
            let outputs = [Buffer::<u32>::poisoned(32 * WORDS), Buffer::poisoned(32 * WORDS)];
            let (floats, record) = (Buffer::from_slice(&x), Buffer::from_slice(&Wide::quantize(&x)));
            let config = LaunchConfig::new(1, 32).shared(512);
            let emulator = Emulator::with_seed(seed);
            probe::launch(
                &emulator,
                config,
                floats.ptr(),
                record.ptr(),
                outputs[0].ptr(),
                outputs[1].ptr(),
            )
            .unwrap();
            outputs[0].check_written().unwrap();
            assert_eq!(outputs[0].to_vec(), outputs[1].to_vec(), "seed {seed}");
        }
    }
}
