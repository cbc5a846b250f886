//! A warp's 256 activations, from memory to the B operand of the tile product without leaving the lanes.
//!
//! [`Activation::split`](crate::tile::Activation::split) reads each value once and sends its bytes through shared
//! memory. In a chain of dependent launches the way there and back is time that nothing hides. Here a lane reads eight
//! columns, so that a warp asks for whole lines: every block of a launch reads the same vector at the same time, and if
//! each lane read the 16 columns whose bytes it keeps, in pieces of 64 bytes, a launch would take 0.3 µs longer. Two lanes
//! exchange what the other's operand needs: one keeps the high bytes and one the low. The bytes fall out of the rounding: adding 1.5·2²³ leaves the integer in the
//! low bits of the float.

use crate::layout::activation::Wide;
use crate::tile::Activation;
use cuda_std::prelude::*;

/// The lane's eight columns of 256: `4 · lane …+3` and those 128 further. So vector `s` is of sub-block `pair + 4s` with
/// `pair = lane / 8`, columns `16h + 4t …+3` of it with `h = lane / 4 % 2`, `t = lane % 4`.
#[derive(Clone, Copy)]
pub struct Columns([F32x4; 2]);

/// 1.5·2²³: a float of this size has no fraction, and its low 22 bits count in units.
const UNITS: f32 = 12_582_912.0;

/// What the largest magnitude of a warp's columns is taken to be at least: with less, its inverse were infinite.
const SMALLEST: f32 = 1e-30;

/// How a byte of an activation is found: the units to add, and the selector of that byte of two words.
type Byte = (f32, u32);

impl Columns {
    /// Of vectors that the lane has.
    #[inline(always)]
    pub(crate) fn of(vectors: [F32x4; 2]) -> Self {
        Self(vectors)
    }

    /// Loads the lane's columns of the 256 floats at `x`, through L1.
    ///
    /// # Safety
    /// `x` points to 256 readable floats, 16-byte aligned.
    #[inline(always)]
    pub unsafe fn load(x: *const f32, lane: u32) -> Self {
        let at = x.wrapping_add(4 * lane as usize);
        // SAFETY: the caller's; all columns are below 256.
        let vector = |columns: usize| unsafe { global::load(at.add(columns).cast::<F32x4>()) };
        Self([vector(0), vector(128)])
    }

    /// The largest magnitude of the warp's columns: the bits of non-negative floats order as integers.
    #[inline(always)]
    fn largest(&self) -> f32 {
        // Above zero, so that zeros need no case of their own.
        let mut largest = [SMALLEST, float::abs(self.0[0].0[1])];
        unroll!(for I in 0..8 {
            if I != 1 {
                largest[I % 2] = float::max(largest[I % 2], float::abs(self.0[I / 4].0[I % 4]));
            }
        });
        let largest = float::max(largest[0], largest[1]);
        f32::from_bits(warp::redux_max(warp::FULL, largest.to_bits()))
    }

    /// The B operand: `q = round(x·32512 / max|x|)`, split into bytes. With `SUMS`, also the sums of 32 columns, which
    /// only types with minimums need. All lanes of the warp call this together.
    #[inline(always)]
    pub fn fragments<const SUMS: bool>(&self, lane: u32) -> Activation {
        let largest = self.largest();
        let inverse = Wide::MAX * float::rcp_approx(largest);
        // The high byte of q + 128 is the high byte that goes with a signed low byte.
        let (high, low): (Byte, Byte) = ((UNITS + 128.0, 0x51), (UNITS, 0x40));
        let second = lane & 4 != 0;
        let (keep, give) = if second { (low, high) } else { (high, low) };
        let mut words = [0u32; 4];
        unroll!(for S in 0..2 {
            let kept = self.bytes(S, inverse, keep);
            let given = warp::shuffle_xor(self.bytes(S, inverse, give), 4);
            let both = if second { [given, kept] } else { [kept, given] };
            words[2 * S] = both[0];
            words[2 * S + 1] = both[1];
        });
        // Products with ones: the tensor cores add faster than lanes exchange.
        let sums = if SUMS {
            [sum_of([words[0], words[1]]), sum_of([words[2], words[3]])]
        } else {
            [0; 2]
        };
        Activation {
            words,
            sums,
            scale: largest * (1.0 / Wide::MAX),
            fine: [0; 4],
        }
    }

    /// A byte of each of the four activations of vector `vector`.
    #[inline(always)]
    fn bytes(&self, vector: usize, inverse: f32, (units, two): Byte) -> u32 {
        let v = self.0[vector].0;
        let bits = |k: usize| float::fma(v[k], inverse, units).to_bits();
        let (first, last) = (
            dot::permute_bytes(bits(0), bits(1), two),
            dot::permute_bytes(bits(2), bits(3), two),
        );
        dot::permute_bytes(first, last, 0x5410)
    }
}

/// The sum of the 32 activations of the lane's sub-block t, from the B operand of four sub-blocks.
#[inline(always)]
fn sum_of(words: [u32; 2]) -> i32 {
    let [high, low, ..] = mma::m16n8k32_u8_s8([0x0101_0101; 4], words, [0; 4]);
    256 * high + low
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_std::emu::{Buffer, Emulator};
    use cuda_std::launch::LaunchConfig;

    /// Words and scale of a warp's columns.
    #[kernel]
    pub unsafe fn probe(x: *const f32, out: *mut u32) {
        let lane = warp::lane();
        // SAFETY: 256 floats, room for five words of each lane.
        unsafe {
            let Activation { words, scale, .. } = Columns::load(x, lane).fragments::<false>(lane);
            unroll!(for I in 0..4 {
                global::store(out.add(5 * lane as usize + I), words[I]);
            });
            global::store(out.add(5 * lane as usize + 4), scale.to_bits());
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        let (x, out) = (Buffer::from_slice(&[0f32; 256]), Buffer::<u32>::poisoned(32 * 5));
        probe::launch(&Emulator::with_seed(0), LaunchConfig::new(1, 32), x.ptr(), out.ptr()).unwrap();
        for lane in out.to_vec().chunks(5) {
            assert_eq!(lane[..4], [0; 4]);
            // A step of zero would have no inverse: not a number, whose bits a GPU and this machine choose differently.
            assert!(f32::from_bits(lane[4]) > 0.0);
        }
    }
}
