//! Rows of random quantised blocks: every bit random, except scales of a sensible size.

use super::{Random, bytes};
use half::f16;

/// Sets the f16 at `at` of every block to a random value around `scale`.
fn scale_blocks(rows: &mut [u8], block_bytes: usize, at: usize, scale: f32, random: &mut Random) {
    for block in rows.chunks_exact_mut(block_bytes) {
        let d = f16::from_f32(scale * (1.0 + 0.5 * random.unit()));
        block[at..at + 2].copy_from_slice(&d.to_le_bytes());
    }
}

/// `blocks` random blocks; at each offset of `scales` an f16 around the value beside it.
pub(super) fn rows(seed: u64, blocks: usize, block_bytes: usize, scales: &[(usize, f32)]) -> Vec<u8> {
    let mut out = bytes(seed, blocks * block_bytes);
    let mut random = Random::new(!seed);
    for &(at, scale) in scales {
        scale_blocks(&mut out, block_bytes, at, scale, &mut random);
    }
    out
}

/// `blocks` random Q4_K blocks (256 values, 144 bytes each).
pub fn q4_k_rows(seed: u64, blocks: usize) -> Vec<u8> {
    rows(seed, blocks, 144, &[(0, 1e-3), (2, 7e-3)])
}

/// `blocks` random Q5_K blocks (256 values, 176 bytes each).
pub fn q5_k_rows(seed: u64, blocks: usize) -> Vec<u8> {
    rows(seed, blocks, 176, &[(0, 5e-4), (2, 7e-3)])
}

/// `blocks` random Q6_K blocks (256 values, 210 bytes each).
pub fn q6_k_rows(seed: u64, blocks: usize) -> Vec<u8> {
    rows(seed, blocks, 210, &[(208, 2e-4)])
}

/// `blocks` random Q8_0 blocks (32 values, 34 bytes each).
pub fn q8_0_rows(seed: u64, blocks: usize) -> Vec<u8> {
    rows(seed, blocks, 34, &[(0, 5e-3)])
}
