//! Weights with a scale per 32 values times [`Group`] activations.
//!
//! Such a type is `y = d · n + m` with signed bytes n. A group is decoded once and multiplied with every
//! token's group: `Σ y·x ≈ d·d_x · Σ n·q + m · d_x Σq`.

use sparkinfer_gguf::TensorType;
use sparkinfer_gguf::blocks::{
    Block, BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, FP4_TABLE,
    IQ4_TABLE, as_blocks, e8m0_half,
};

use super::isa::{Isa, array};
use super::kquants::sum;
use super::quantize::{GROUP, Group};
use super::{Level, dispatch};

/// A type with a float scale for every 32 values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cpu) enum GroupType {
    Q40,
    Q41,
    Q50,
    Q51,
    Q80,
    Iq4Nl,
    Iq4Xs,
    Mxfp4,
}

/// Tokens that share one decoding of a group.
const TILE: usize = 16;

impl GroupType {
    pub(in crate::cpu) fn of(ty: TensorType) -> Option<Self> {
        match ty {
            TensorType::Q4_0 => Some(GroupType::Q40),
            TensorType::Q4_1 => Some(GroupType::Q41),
            TensorType::Q5_0 => Some(GroupType::Q50),
            TensorType::Q5_1 => Some(GroupType::Q51),
            TensorType::Q8_0 => Some(GroupType::Q80),
            TensorType::IQ4_NL => Some(GroupType::Iq4Nl),
            TensorType::IQ4_XS => Some(GroupType::Iq4Xs),
            TensorType::MXFP4 => Some(GroupType::Mxfp4),
            _ => None,
        }
    }

    /// For each row of `weights`, `out[row][i]` = row · token `tokens[i]`. `inputs` holds `groups`
    /// groups a token; a row is as many groups of the type.
    pub(in crate::cpu) fn rows(
        self,
        level: Level,
        weights: &[u8],
        inputs: &[Group],
        groups: usize,
        tokens: &[u32],
        out: &mut [f32],
    ) {
        match self {
            GroupType::Q40 => rows::<BlockQ4_0>(level, weights, inputs, groups, tokens, out),
            GroupType::Q41 => rows::<BlockQ4_1>(level, weights, inputs, groups, tokens, out),
            GroupType::Q50 => rows::<BlockQ5_0>(level, weights, inputs, groups, tokens, out),
            GroupType::Q51 => rows::<BlockQ5_1>(level, weights, inputs, groups, tokens, out),
            GroupType::Q80 => rows::<BlockQ8_0>(level, weights, inputs, groups, tokens, out),
            GroupType::Iq4Nl => rows::<BlockIq4Nl>(level, weights, inputs, groups, tokens, out),
            GroupType::Iq4Xs => rows::<BlockIq4Xs>(level, weights, inputs, groups, tokens, out),
            GroupType::Mxfp4 => rows::<BlockMxfp4>(level, weights, inputs, groups, tokens, out),
        }
    }
}

dispatch! {
    pub(in crate::cpu::simd) fn rows / rows_avx2<B: DecodeGroup>(
        weights: &[u8], inputs: &[Group], groups: usize, tokens: &[u32], out: &mut [f32],
    ) = rows_body
}

#[inline(always)]
fn rows_body<I: Isa, B: DecodeGroup>(weights: &[u8], inputs: &[Group], groups: usize, tokens: &[u32], out: &mut [f32]) {
    let weights = as_blocks::<B>(weights).unwrap_or_default();
    let per_block = B::LEN / GROUP;
    for (row, out) in weights
        .chunks_exact(groups / per_block)
        .zip(out.chunks_exact_mut(tokens.len()))
    {
        for (tokens, out) in tokens.chunks(TILE).zip(out.chunks_mut(TILE)) {
            let mut sums = [Sums::default(); TILE];
            for g in 0..groups {
                let w = row[g / per_block].decode::<I>(g % per_block);
                for (&token, sums) in tokens.iter().zip(&mut sums) {
                    sums.add::<I>(&w, &inputs[token as usize * groups + g]);
                }
            }
            for (out, sums) in out.iter_mut().zip(&sums) {
                *out = sum(&sums.lanes) + sums.offset;
            }
        }
    }
}

/// The running sums of one product.
#[derive(Clone, Copy, Default)]
struct Sums {
    lanes: [f32; 8],
    offset: f32,
}

impl Sums {
    #[inline(always)]
    fn add<I: Isa>(&mut self, w: &Decoded, x: &Group) {
        let products = I::to_f32(I::dot(&w.n, &x.q));
        let d = w.d * x.d;
        for (lane, product) in self.lanes.iter_mut().zip(products) {
            *lane = d.mul_add(product, *lane);
        }
        self.offset = w.m.mul_add(x.sum, self.offset);
    }
}

/// A decoded group.
pub(in crate::cpu::simd) struct Decoded {
    n: [i8; 32],
    d: f32,
    m: f32,
}

/// A block of one or more groups.
pub(in crate::cpu::simd) trait DecodeGroup: Block {
    /// Group `g` of the block.
    fn decode<I: Isa>(&self, g: usize) -> Decoded;
}

impl DecodeGroup for BlockQ8_0 {
    #[inline(always)]
    fn decode<I: Isa>(&self, _: usize) -> Decoded {
        Decoded {
            n: self.qs,
            d: I::half(self.d),
            m: 0.0,
        }
    }
}

impl DecodeGroup for BlockQ4_0 {
    #[inline(always)]
    fn decode<I: Isa>(&self, _: usize) -> Decoded {
        Decoded {
            n: signed(halves(&self.qs), 8),
            d: I::half(self.d),
            m: 0.0,
        }
    }
}

impl DecodeGroup for BlockQ4_1 {
    #[inline(always)]
    fn decode<I: Isa>(&self, _: usize) -> Decoded {
        Decoded {
            n: signed(halves(&self.qs), 0),
            d: I::half(self.d),
            m: I::half(self.m),
        }
    }
}

impl DecodeGroup for BlockQ5_0 {
    #[inline(always)]
    fn decode<I: Isa>(&self, _: usize) -> Decoded {
        Decoded {
            n: signed(five_bits(&self.qs, &self.qh), 16),
            d: I::half(self.d),
            m: 0.0,
        }
    }
}

impl DecodeGroup for BlockQ5_1 {
    #[inline(always)]
    fn decode<I: Isa>(&self, _: usize) -> Decoded {
        Decoded {
            n: signed(five_bits(&self.qs, &self.qh), 0),
            d: I::half(self.d),
            m: I::half(self.m),
        }
    }
}

impl DecodeGroup for BlockIq4Nl {
    #[inline(always)]
    fn decode<I: Isa>(&self, _: usize) -> Decoded {
        Decoded {
            n: looked_up(halves(&self.qs), &IQ4_TABLE),
            d: I::half(self.d),
            m: 0.0,
        }
    }
}

impl DecodeGroup for BlockIq4Xs {
    #[inline(always)]
    fn decode<I: Isa>(&self, g: usize) -> Decoded {
        let bytes = array(|i| self.qs[16 * g + i]);
        let d = I::half(self.d) * f32::from(self.scale(g));
        Decoded {
            n: looked_up(halves(&bytes), &IQ4_TABLE),
            d,
            m: 0.0,
        }
    }
}

impl DecodeGroup for BlockMxfp4 {
    #[inline(always)]
    fn decode<I: Isa>(&self, _: usize) -> Decoded {
        Decoded {
            n: looked_up(halves(&self.qs), &FP4_TABLE),
            d: e8m0_half(self.e),
            m: 0.0,
        }
    }
}

/// The values less an offset.
#[inline(always)]
fn signed(n: [u8; 32], offset: i8) -> [i8; 32] {
    array(|i| n[i] as i8 - offset)
}

/// The values that a table gives for nibbles.
#[inline(always)]
fn looked_up(n: [u8; 32], table: &[i8; 16]) -> [i8; 32] {
    array(|i| table[usize::from(n[i] & 15)])
}

/// 32 nibbles: the low ones of all bytes, then the high ones.
#[inline(always)]
fn halves(qs: &[u8; 16]) -> [u8; 32] {
    array(|i| if i < 16 { qs[i] & 15 } else { qs[i - 16] >> 4 })
}

/// As [`halves`], with bit i of `high` on top of value i.
#[inline(always)]
fn five_bits(qs: &[u8; 16], high: &[u8; 4]) -> [u8; 32] {
    let nibbles = halves(qs);
    array(|i| nibbles[i] | (high[i / 8] >> (i % 8) & 1) << 4)
}
