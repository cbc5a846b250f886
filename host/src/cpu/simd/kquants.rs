//! K-quant weights times [`Super`] activations, in integers.
//!
//! Every K-quant is `y = d · s_g · n − m · z_g` with unsigned n below 64 and a small integer scale s and
//! offset z per group of 16 (signed types are shifted to unsigned: the shift becomes the offset). A block
//! of 256 is decoded once into that form and then multiplied with every token's block:
//! `Σ y·x ≈ d·d_x · Σ s_g (n·q)_g − m·d_x · Σ z_g (Σq)_g`.

use sparkinfer_gguf::TensorType;
use sparkinfer_gguf::blocks::{BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, as_blocks};

use super::isa::{Isa, array};
use super::quantize::Super;
use super::{Level, dispatch};

/// A type whose blocks of 256 have integer scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cpu) enum KType {
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

/// Tokens that share one decoding of a block.
const TILE: usize = 16;

/// A decoded block.
#[repr(C, align(32))]
pub(in crate::cpu::simd) struct Decoded {
    n: [[u8; 32]; 8],
    /// The scale of each pair of values that the 16-bit multiplication takes.
    scales: [[i16; 16]; 8],
    /// The offset of each group of 16.
    offsets: [i16; 16],
    d: f32,
    m: f32,
}

impl Decoded {
    const ZERO: Self = Decoded {
        n: [[0; 32]; 8],
        scales: [[0; 16]; 8],
        offsets: [0; 16],
        d: 0.0,
        m: 0.0,
    };

    /// Scales of groups of 16.
    #[inline(always)]
    fn set_scales(&mut self, scale: impl Fn(usize) -> i16) {
        for (v, lanes) in self.scales.iter_mut().enumerate() {
            lanes[..8].fill(scale(2 * v));
            lanes[8..].fill(scale(2 * v + 1));
        }
    }
}

impl KType {
    pub(in crate::cpu) fn of(ty: TensorType) -> Option<Self> {
        match ty {
            TensorType::Q2_K => Some(KType::Q2K),
            TensorType::Q3_K => Some(KType::Q3K),
            TensorType::Q4_K => Some(KType::Q4K),
            TensorType::Q5_K => Some(KType::Q5K),
            TensorType::Q6_K => Some(KType::Q6K),
            _ => None,
        }
    }

    /// For each row of `weights`, `out[row][i]` = row · token `tokens[i]`. `inputs` holds `blocks`
    /// blocks a token; a row is as many blocks of the type.
    pub(in crate::cpu) fn rows(
        self,
        level: Level,
        weights: &[u8],
        inputs: &[Super],
        blocks: usize,
        tokens: &[u32],
        out: &mut [f32],
    ) {
        match self {
            KType::Q2K => rows::<BlockQ2K>(level, weights, inputs, blocks, tokens, out),
            KType::Q3K => rows::<BlockQ3K>(level, weights, inputs, blocks, tokens, out),
            KType::Q4K => rows::<BlockQ4K>(level, weights, inputs, blocks, tokens, out),
            KType::Q5K => rows::<BlockQ5K>(level, weights, inputs, blocks, tokens, out),
            KType::Q6K => rows::<BlockQ6K>(level, weights, inputs, blocks, tokens, out),
        }
    }
}

dispatch! {
    pub(in crate::cpu::simd) fn rows / rows_avx2<B: Decode>(
        weights: &[u8], inputs: &[Super], blocks: usize, tokens: &[u32], out: &mut [f32],
    ) = rows_body
}

#[inline(always)]
fn rows_body<I: Isa, B: Decode>(weights: &[u8], inputs: &[Super], blocks: usize, tokens: &[u32], out: &mut [f32]) {
    let weights = as_blocks::<B>(weights).unwrap_or_default();
    let mut decoded = Decoded::ZERO;
    for (row, out) in weights.chunks_exact(blocks).zip(out.chunks_exact_mut(tokens.len())) {
        for (tokens, out) in tokens.chunks(TILE).zip(out.chunks_mut(TILE)) {
            let mut lanes = [[0f32; 8]; TILE];
            for (b, block) in row.iter().enumerate() {
                block.decode::<I>(&mut decoded);
                for (&token, lanes) in tokens.iter().zip(&mut lanes) {
                    add_block::<I>(&decoded, &inputs[token as usize * blocks + b], lanes);
                }
            }
            for (out, lanes) in out.iter_mut().zip(&lanes) {
                *out = sum(lanes);
            }
        }
    }
}

#[inline(always)]
fn add_block<I: Isa>(w: &Decoded, x: &Super, lanes: &mut [f32; 8]) {
    let mut products = I::zero();
    for v in 0..8 {
        products = I::add_scaled(products, &w.n[v], &x.q[v], &w.scales[v]);
    }
    let products = I::to_f32(products);
    let offsets = I::to_f32(I::add_pairs(I::zero(), &w.offsets, &x.sums));
    let (d, m) = (w.d * x.d, -(w.m * x.d));
    for l in 0..8 {
        lanes[l] = m.mul_add(offsets[l], d.mul_add(products[l], lanes[l]));
    }
}

/// The sum of the lanes by halving.
#[inline(always)]
pub(super) fn sum(lanes: &[f32; 8]) -> f32 {
    let four: [f32; 4] = array(|l| lanes[l] + lanes[l + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// A block of a K-quant.
pub(in crate::cpu::simd) trait Decode: sparkinfer_gguf::blocks::Block {
    /// Writes all fields of `out`.
    fn decode<I: Isa>(&self, out: &mut Decoded);
}

impl Decode for BlockQ4K {
    #[inline(always)]
    fn decode<I: Isa>(&self, out: &mut Decoded) {
        split_nibbles(&self.qs, &mut out.n);
        set_six_bit_scales(&self.scales, out);
        (out.d, out.m) = (I::half(self.d), I::half(self.dmin));
    }
}

impl Decode for BlockQ5K {
    #[inline(always)]
    fn decode<I: Isa>(&self, out: &mut Decoded) {
        split_nibbles(&self.qs, &mut out.n);
        for (j, n) in out.n.iter_mut().enumerate() {
            *n = array(|l| n[l] | (self.qh[l] >> j & 1) << 4);
        }
        set_six_bit_scales(&self.scales, out);
        (out.d, out.m) = (I::half(self.d), I::half(self.dmin));
    }
}

impl Decode for BlockQ6K {
    #[inline(always)]
    fn decode<I: Isa>(&self, out: &mut Decoded) {
        for (h, n) in out.n.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let (low, high) = (&self.ql[64 * h..][..64], &self.qh[32 * h..][..32]);
            for l in 0..32 {
                n[0][l] = low[l] & 15 | (high[l] & 3) << 4;
                n[1][l] = low[l + 32] & 15 | (high[l] >> 2 & 3) << 4;
                n[2][l] = low[l] >> 4 | (high[l] >> 4 & 3) << 4;
                n[3][l] = low[l + 32] >> 4 | (high[l] >> 6) << 4;
            }
        }
        out.set_scales(|g| i16::from(self.scales[g]));
        out.offsets = array(|g| 32 * i16::from(self.scales[g]));
        (out.d, out.m) = (I::half(self.d), I::half(self.d));
    }
}

impl Decode for BlockQ2K {
    #[inline(always)]
    fn decode<I: Isa>(&self, out: &mut Decoded) {
        split_two_bits(&self.qs, &mut out.n);
        out.set_scales(|g| i16::from(self.scales[g] & 15));
        out.offsets = array(|g| i16::from(self.scales[g] >> 4));
        (out.d, out.m) = (I::half(self.d), I::half(self.dmin));
    }
}

impl Decode for BlockQ3K {
    #[inline(always)]
    fn decode<I: Isa>(&self, out: &mut Decoded) {
        split_two_bits(&self.qs, &mut out.n);
        for (v, n) in out.n.iter_mut().enumerate() {
            *n = array(|l| n[l] | (self.hmask[l] >> v & 1) << 2);
        }
        out.set_scales(|g| i16::from(self.scale(g)));
        out.offsets = array(|g| 4 * i16::from(self.scale(g)));
        (out.d, out.m) = (I::half(self.d), I::half(self.d));
    }
}

/// Byte 32j + l holds value 64j + l in its low and 64j + 32 + l in its high nibble.
#[inline(always)]
fn split_nibbles(qs: &[u8; 128], n: &mut [[u8; 32]; 8]) {
    let (bytes, _) = qs.as_chunks::<32>();
    for (bytes, n) in bytes.iter().zip(n.as_chunks_mut::<2>().0) {
        n[0] = array(|l| bytes[l] & 15);
        n[1] = array(|l| bytes[l] >> 4);
    }
}

/// Byte 32h + l holds values 128h + 32g + l, two bits each.
#[inline(always)]
fn split_two_bits(qs: &[u8; 64], n: &mut [[u8; 32]; 8]) {
    let (bytes, _) = qs.as_chunks::<32>();
    for (bytes, n) in bytes.iter().zip(n.as_chunks_mut::<4>().0) {
        for (g, n) in n.iter_mut().enumerate() {
            *n = array(|l| bytes[l] >> (2 * g) & 3);
        }
    }
}

/// The packed scales and minimums of Q4_K and Q5_K (see [`sparkinfer_gguf::blocks::scale_min`]), four at a time.
#[inline(always)]
fn set_six_bit_scales(packed: &[u8; 12], out: &mut Decoded) {
    let word = |i: usize| u32::from_le_bytes([packed[i], packed[i + 1], packed[i + 2], packed[i + 3]]);
    let (scales, mins, low) = (word(0), word(4), word(8));
    let top = |word: u32| (word >> 6 & 0x0303_0303) << 4;
    let pair = |first: u32, second: u32| (u64::from(second) << 32 | u64::from(first)).to_le_bytes();
    let scales = pair(scales & 0x3f3f_3f3f, low & 0x0f0f_0f0f | top(scales));
    let mins_bytes = pair(mins & 0x3f3f_3f3f, low >> 4 & 0x0f0f_0f0f | top(mins));
    for (lanes, scale) in out.scales.iter_mut().zip(scales) {
        *lanes = [i16::from(scale); 16];
    }
    for (pair, min) in out.offsets.as_chunks_mut::<2>().0.iter_mut().zip(mins_bytes) {
        *pair = [i16::from(min); 2];
    }
}
