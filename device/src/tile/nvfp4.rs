//! The tile product of NVFP4.
//!
//! `w = scale·step` with an unsigned E4M3 scale for each 16 columns; the scale of the whole tensor is not applied here.

use super::codes::{Codes, FP4};
use super::{Activation, Source, Tile, sixteen};
use crate::layout;
use crate::num::half;
use cuda_std::prelude::*;

/// A lane's share of an NVFP4 tile: see [`layout::Nvfp4Tile`].
#[derive(Clone, Copy)]
pub struct Nvfp4Tile {
    pub(crate) codes: Codes,
    pub(crate) scales: [u32; 2],
}

/// What is left of a scale's value when its bits are read as those of an f16: E4M3's exponent is off by 8, and
/// steps are doubled.
pub(crate) const SCALE: f32 = 128.0;

/// The seven bits of each byte but 0x7f, which is no number and counts as 0.
#[inline(always)]
pub(crate) fn numbers(scales: u32) -> u32 {
    let other = scales ^ 0x7f7f_7f7f;
    // The top bit of each byte that is not 0x7f.
    let kept = (((other & 0x7f7f_7f7f) + 0x7f7f_7f7f) | other) & 0x8080_8080;
    scales & (kept - (kept >> 7))
}

/// One row of the lane: its four scales, and the sums of its four sub-blocks.
#[inline(always)]
fn row(scales: u32, v: [i32; 4]) -> f32 {
    let scales = numbers(scales);
    // Bytes 0, 1 and 2, 3 as halves: seven bits from the top of the exponent on.
    let pair = |bytes: u32| dot::permute_bytes(scales, 0, bytes) >> 1;
    let (a, b) = (pair(0x1404), pair(0x3424));
    let low = float::fma(half(a & 0xffff), v[0] as f32, half(a >> 16) * v[1] as f32);
    let high = float::fma(half(b & 0xffff), v[2] as f32, half(b >> 16) * v[3] as f32);
    low + high
}

impl Tile for Nvfp4Tile {
    const BYTES: usize = layout::Nvfp4Tile::TILE_BYTES;
    type Scales = ();

    #[inline(always)]
    fn zero() -> Self {
        Self {
            codes: Codes::ZERO,
            scales: [0; 2],
        }
    }

    #[inline(always)]
    unsafe fn load(tile: impl Source, lane: u32) -> Self {
        // SAFETY: the caller's; all offsets lie within the tile.
        unsafe {
            Self {
                codes: Codes::load(tile, lane),
                scales: tile.pair(layout::Nvfp4Tile::SCALES, lane),
            }
        }
    }

    #[inline(always)]
    fn scales(&self, _lane: u32) {}

    #[inline(always)]
    fn multiply(&self, (): (), x: &Activation, lane: u32) -> [f32; 2] {
        let (mut v, mut w) = ([0; 4], [0; 4]);
        unroll!(for A in 0..4 {
            let [[p, n], [q, m]] = self.codes.operands(FP4, A);
            [v[A], w[A]] = sixteen::differences([[p, q], [n, m]], x, A, lane);
        });
        let scale = SCALE * x.scale;
        [scale * row(self.scales[0], v), scale * row(self.scales[1], w)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkinfer_gguf::blocks::ue4m3_half;

    #[test]
    fn every_scale_in_every_place_has_its_value() {
        for byte in 0..=255u8 {
            for place in 0..4 {
                let mut scales = [0x7f; 4];
                scales[place] = byte;
                let mut sums = [1000; 4];
                sums[place] = 3;
                let value = SCALE * row(u32::from_le_bytes(scales), sums);
                assert_eq!(value, 3.0 * ue4m3_half(byte), "byte {byte}, place {place}");
            }
        }
    }
}
