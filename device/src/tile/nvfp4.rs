//! The tile product of NVFP4.
//!
//! `w = scale·step` with an unsigned E4M3 scale for each 16 columns; the scale of the whole tensor is not applied here.
//! Steps are raised as [`codes`](super::codes) says, so the sums of the activations over 16 columns are wanted too.

use super::codes::{Codes, FP4, FP4_RAISED};
use super::{Activation, Source, Tile, sixteen};
use crate::layout;
use cuda_std::prelude::*;

/// A lane's share of an NVFP4 tile: see [`layout::Nvfp4Tile`].
#[derive(Clone, Copy)]
pub struct Nvfp4Tile {
    codes: Codes,
    scales: [u32; 2],
}

/// Half of the unsigned E4M3 number in byte `K` of `word`: its seven bits are the exponent and the mantissa of a float
/// whose exponent is off by 120. 0x7f, which is no number, counts as 0.
#[inline(always)]
fn half_e4m3<const K: u32>(word: u32) -> f32 {
    const TWO_TO_119: f32 = f32::from_bits((127 + 119) << 23);
    let bits = if K < 3 { word << (20 - 8 * K) } else { word >> 4 };
    if word >> (8 * K) & 255 == 0x7f {
        return 0.0;
    }
    f32::from_bits(bits & 0x07f0_0000) * TWO_TO_119
}

/// One row of the lane: its four scales, and the sums of its four sub-blocks.
#[inline(always)]
fn row(scales: u32, v: [i32; 4]) -> f32 {
    let low = float::fma(
        half_e4m3::<0>(scales),
        v[0] as f32,
        half_e4m3::<1>(scales) * v[1] as f32,
    );
    let high = float::fma(
        half_e4m3::<2>(scales),
        v[2] as f32,
        half_e4m3::<3>(scales) * v[3] as f32,
    );
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
        let all = sixteen::activation_sums(x, lane);
        let (mut v, mut w) = ([0; 4], [0; 4]);
        unroll!(for A in 0..4 {
            let [a, b] = sixteen::sums(self.codes.operands(FP4, A), x, A, lane);
            v[A] = a - FP4_RAISED * all[A];
            w[A] = b - FP4_RAISED * all[A];
        });
        [x.scale * row(self.scales[0], v), x.scale * row(self.scales[1], w)]
    }
}
