//! How kernels are tested (host only): seeded inputs, machines to run on, and the cases of every kernel.

mod blocks;
mod case;
pub mod cases;
mod emulated;
mod machine;
mod matrix;
pub mod tiled;

pub use blocks::{q4_k_rows, q5_k_rows, q6_k_rows, q8_0_rows};
pub use case::{Case, rms, within};
pub use emulated::Emulated;
pub use machine::Machine;
pub use matrix::{Matrix, matrix};

/// A small seeded generator (splitmix64): the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers depend on `seed` only.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A whole number in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// A float in `[-1, 1)`.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 * (2.0 / 16_777_216.0) - 1.0
    }

    /// A bell-shaped float with deviation 1: the sum of twelve uniform ones.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() * 0.5
    }
}

/// `n` random bytes.
pub fn bytes(seed: u64, n: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..n).map(|_| random.bits() as u8).collect()
}

/// `n` bell-shaped floats with deviation `scale`.
pub fn floats(seed: u64, n: usize, scale: f32) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..n).map(|_| scale * random.normal()).collect()
}

/// Radians a step of the `rotary / 2` pairs of a head: a geometric series.
pub fn radians(rotary: usize, base: f64) -> Vec<f64> {
    let pairs = 0..rotary / 2;
    pairs
        .map(|pair| base.powf(-2.0 * pair as f64 / rotary as f64))
        .collect()
}
