//! Rotary position embedding.
//!
//! **Computes**, for each head and each pair i of its first `rotary` dims, the rotation of `(a, b)` by the angle
//! `position·θᵢ`: `(a·cos − b·sin, a·sin + b·cos)·m`. A pair is `(i, i + rotary/2)` (NEOX, `rope_neox`) or `(2i, 2i + 1)`
//! (NORM, `rope_norm`). θᵢ and m come from a table made on the host ([`table`]), so that base, partial dims,
//! per-pair factors, linear scaling and YaRN are data.
//!
//! The table holds θᵢ/2π as the sum of two floats. The angle in turns is then formed exactly enough that its fraction is
//! good to 2⁻²³ turns at any position that a u32 counts below 2²⁴, where a float product of position and θ has lost
//! a thousandth of a radian at 40,000.
//!
//! **Moves** 8 bytes a dim: x in place.
//!
//! **Shape of work**: a thread takes a pair; block x is the head, y the token.
//!
//! **Launch**: [`config`]; PDL allowed.

use cuda_std::prelude::*;

/// Where the heads of a batch of tokens lie, and how much of each is rotated.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Heads {
    /// Dims that are rotated, even; the rest stay as they are.
    pub rotary: u32,
    /// Floats from one head to the next.
    pub head_stride: u32,
    /// Floats from one token to the next.
    pub token_stride: u32,
    /// Multiplies the rotated dims (YaRN; else 1).
    pub magnitude: f32,
}

/// Sine and cosine of `position` times the frequency whose turns a step are `high + low`.
#[inline(always)]
pub fn rotation(position: u32, frequency: F32x2) -> (f32, f32) {
    let [high, low] = frequency.0;
    let p = position as f32;
    let turns = p * high;
    let error = float::fma(p, high, -turns);
    sin_cos_turns((turns - float::round(turns)) + float::fma(p, low, error))
}

/// Sine and cosine of 2π·t for |t| ≤ 1: an eighth of a turn around the nearest quarter, by Taylor polynomials.
#[inline(always)]
fn sin_cos_turns(t: f32) -> (f32, f32) {
    let quarter = float::round(4.0 * t);
    let a = float::fma(-0.25, quarter, t) * core::f32::consts::TAU;
    let z = a * a;
    let poly = |c: [f32; 4]| float::fma(float::fma(float::fma(c[3], z, c[2]), z, c[1]), z, c[0]);
    let sin = float::fma(
        a * z,
        poly([-1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362_880.0]),
        a,
    );
    let cos = float::fma(z, poly([-0.5, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40_320.0]), 1.0);
    // Signs by bits: of two selections by two bits of one number the assembler (13.0) makes one instruction that sets two
    // predicates, and has been seen to set them again, for another angle, before the last selection by the first two.
    let quarter = float::to_i32(quarter) as u32;
    let sign = |v: f32| f32::from_bits(v.to_bits() ^ (quarter & 2) << 30);
    let (s, c) = if quarter & 1 == 0 { (sin, cos) } else { (cos, -sin) };
    (sign(s), sign(c))
}

#[inline(always)]
unsafe fn rotate<const NEOX: bool>(x: *mut f32, positions: *const u32, frequencies: *const F32x2, heads: Heads) {
    let (pair, half) = (thread::thread_idx_x(), heads.rotary / 2);
    let frequency = if pair < half {
        // SAFETY: the table has a frequency for each pair, and is a weight: nothing writes it.
        unsafe { global::load_nc(frequencies.add(pair as usize)) }
    } else {
        F32x2([0.0; 2])
    };
    pdl::launch_dependents();
    pdl::wait();
    if pair >= half {
        return;
    }
    let (head, token) = (thread::block_idx_x() as usize, thread::block_idx_y() as usize);
    let (first, second) = if NEOX {
        (pair, pair + half)
    } else {
        (2 * pair, 2 * pair + 1)
    };
    // SAFETY: a position for each token; token, head and dim exist.
    unsafe {
        let (sin, cos) = rotation(global::load(positions.add(token)), frequency);
        let (sin, cos) = (sin * heads.magnitude, cos * heads.magnitude);
        let x = x.add(token * heads.token_stride as usize + head * heads.head_stride as usize);
        let (a, b) = (
            global::load(x.add(first as usize)),
            global::load(x.add(second as usize)),
        );
        global::store(x.add(first as usize), float::fma(a, cos, -(b * sin)));
        global::store(x.add(second as usize), float::fma(a, sin, b * cos));
    }
}

/// Rotary embedding in place, pairs (i, i + rotary/2).
///
/// # Safety
/// The launch follows [`config`]: x has its heads and tokens, `positions` one a token, `frequencies` rotary/2.
#[kernel(pdl)]
pub unsafe fn rope_neox(x: *mut f32, positions: *const u32, frequencies: *const F32x2, heads: Heads) {
    // SAFETY: the launch's contract.
    unsafe { rotate::<true>(x, positions, frequencies, heads) }
}

/// Rotary embedding in place, pairs (2i, 2i + 1).
///
/// # Safety
/// The launch follows [`config`]: x has its heads and tokens, `positions` one a token, `frequencies` rotary/2.
#[kernel(pdl)]
pub unsafe fn rope_norm(x: *mut f32, positions: *const u32, frequencies: *const F32x2, heads: Heads) {
    // SAFETY: the launch's contract.
    unsafe { rotate::<false>(x, positions, frequencies, heads) }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::Heads;
    use crate::shape::{ShapeError, count};
    use cuda_std::F32x2;
    use cuda_std::launch::LaunchConfig;
    use std::f64::consts::TAU;

    /// The device's table of frequencies in radians a step: turns a step, each as the sum of two floats.
    pub fn table(radians: &[f64]) -> Vec<F32x2> {
        let split = |turns: f64| F32x2([turns as f32, (turns - f64::from(turns as f32)) as f32]);
        radians.iter().map(|theta| split(theta / TAU)).collect()
    }

    /// The shape of a launch over `count_heads` heads of `tokens` tokens.
    ///
    /// # Errors
    /// When the rotated dims are odd, none, or more than a head's, or when there are no heads or tokens.
    pub fn config(heads: Heads, head_count: usize, tokens: usize) -> Result<LaunchConfig, ShapeError> {
        let refuse = |rule| Err(ShapeError::new("rope", rule));
        let Heads {
            rotary, head_stride, ..
        } = heads;
        if rotary == 0 || rotary % 2 == 1 || rotary > head_stride || rotary > 2048 {
            return refuse(format!(
                "{rotary} dims of {head_stride}; it takes an even number up to the head's dims and 2048"
            ));
        }
        let (head_count, tokens) = (count("rope", "heads", head_count)?, count("rope", "tokens", tokens)?);
        if tokens > 65_535 {
            return refuse(format!("{tokens} tokens; it takes 65535 at a time"));
        }
        let threads = (rotary / 2).next_multiple_of(32);
        Ok(LaunchConfig::shaped([head_count, tokens, 1], [threads, 1, 1]).pdl(true))
    }

    /// One head, rotated in f64; `theta[i]` is the angle a step of pair i.
    pub fn reference(head: &[f32], neox: bool, heads: Heads, theta: &[f64], position: u32) -> Vec<f64> {
        let mut out: Vec<f64> = head.iter().map(|v| f64::from(*v)).collect();
        let (half, m) = (heads.rotary as usize / 2, f64::from(heads.magnitude));
        for (i, theta) in theta.iter().enumerate().take(half) {
            let (first, second) = if neox { (i, i + half) } else { (2 * i, 2 * i + 1) };
            let (sin, cos) = (theta * f64::from(position)).sin_cos();
            let (a, b) = (f64::from(head[first]), f64::from(head[second]));
            (out[first], out[second]) = ((a * cos - b * sin) * m, (a * sin + b * cos) * m);
        }
        out
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::{config, reference, table};

#[cfg(test)]
mod tests {
    use super::{rotation, table};
    use crate::testing::radians;

    #[test]
    fn rotations_are_right_at_long_positions() {
        let radians = radians(128, 1e6);
        let mut worst = 0f64;
        for position in [0u32, 1, 2, 1000, 4095, 32767, 40000, 131071, 1 << 20] {
            for (pair, theta) in table(&radians).into_iter().zip(&radians) {
                let (sin, cos) = rotation(position, pair);
                let (s, c) = (theta * f64::from(position)).sin_cos();
                worst = worst.max((f64::from(sin) - s).abs()).max((f64::from(cos) - c).abs());
            }
        }
        assert!(worst < 4e-7, "{worst:e}");
    }
}
