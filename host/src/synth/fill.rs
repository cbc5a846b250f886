//! Random blocks of every type that a mix uses.
//!
//! Quants are random bytes, so uniform over their range; scales are set so that the values have the wanted deviation,
//! and vary from group to group as in trained weights. Where quants have no offset their mean is -1/2: scales of both
//! signs even it out.

use sparkinfer_gguf::TensorType;
use sparkinfer_gguf::blocks::{
    Block, BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockNvfp4, BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4K, BlockQ5_0,
    BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0, F16, as_blocks_mut, pack_scale_min,
};
use sparkinfer_gguf::quantize::quantize_row;

use super::random::Random;
use super::tensors::Values;

/// Values of plain numbers made at a time.
const NUMBERS: usize = 256;

/// Fills whole blocks.
pub(super) fn fill(ty: TensorType, values: Values, random: &mut Random, out: &mut [u8]) {
    match ty {
        TensorType::Q4_0 => blocks::<BlockQ4_0>(values, random, out),
        TensorType::Q5_0 => blocks::<BlockQ5_0>(values, random, out),
        TensorType::Q5_1 => blocks::<BlockQ5_1>(values, random, out),
        TensorType::Q8_0 => blocks::<BlockQ8_0>(values, random, out),
        TensorType::Q2_K => blocks::<BlockQ2K>(values, random, out),
        TensorType::Q3_K => blocks::<BlockQ3K>(values, random, out),
        TensorType::IQ4_NL => blocks::<BlockIq4Nl>(values, random, out),
        TensorType::IQ4_XS => blocks::<BlockIq4Xs>(values, random, out),
        TensorType::Q4_K => blocks::<BlockQ4K>(values, random, out),
        TensorType::Q5_K => blocks::<BlockQ5K>(values, random, out),
        TensorType::Q6_K => blocks::<BlockQ6K>(values, random, out),
        TensorType::MXFP4 => blocks::<BlockMxfp4>(values, random, out),
        TensorType::NVFP4 => blocks::<BlockNvfp4>(values, random, out),
        _ => numbers(ty, values, random, out),
    }
}

/// Bell-shaped numbers, rounded to the type.
fn numbers(ty: TensorType, values: Values, random: &mut Random, out: &mut [u8]) {
    for piece in out.chunks_mut(NUMBERS * ty.block_bytes()) {
        let mut row = [0.0; NUMBERS];
        let row = &mut row[..piece.len() / ty.block_bytes() * ty.block_len()];
        row.iter_mut()
            .for_each(|v| *v = values.mean + values.deviation * random.bell());
        // the mixes use types here that take any number of values
        let written = quantize_row(ty, row, piece);
        debug_assert_eq!(written, Ok(()));
    }
}

/// Random quants, then scales.
fn blocks<B: RandomBlock>(values: Values, random: &mut Random, out: &mut [u8]) {
    random.bytes(out);
    for block in as_blocks_mut::<B>(out).unwrap_or_default() {
        block.set_scales(values.deviation, random);
    }
}

/// A block whose quants are uniform and whose scales can be set.
trait RandomBlock: Block {
    /// Gives the values a standard deviation.
    fn set_scales(&mut self, deviation: f32, random: &mut Random);
}

/// Deviation of whole numbers spread evenly over `levels` neighbours.
fn uniform(levels: f32) -> f32 {
    ((levels * levels - 1.0) / 12.0).sqrt()
}

/// A block scale for values of 32: from 3/4 to 5/4 of what `levels` uniform quants need.
fn varied(deviation: f32, levels: f32, random: &mut Random) -> f32 {
    deviation / uniform(levels) * (0.75 + 0.5 * random.unit())
}

/// Root mean square of the numbers from 32 to 63, the group scales used below.
const SCALE_RMS: f32 = 48.4;

/// Eight numbers from 32 to 63.
fn group_scales(random: &mut Random) -> [u8; 8] {
    random.next().to_le_bytes().map(|byte| 32 | byte & 31)
}

impl RandomBlock for BlockQ4_0 {
    fn set_scales(&mut self, deviation: f32, random: &mut Random) {
        self.d = F16::from_f32(random.sign() * varied(deviation, 16.0, random));
    }
}

impl RandomBlock for BlockQ5_0 {
    fn set_scales(&mut self, deviation: f32, random: &mut Random) {
        self.d = F16::from_f32(random.sign() * varied(deviation, 32.0, random));
    }
}

impl RandomBlock for BlockQ5_1 {
    fn set_scales(&mut self, deviation: f32, random: &mut Random) {
        let d = varied(deviation, 32.0, random);
        self.d = F16::from_f32(d);
        self.m = F16::from_f32(-15.5 * d);
    }
}

impl RandomBlock for BlockQ8_0 {
    fn set_scales(&mut self, deviation: f32, random: &mut Random) {
        self.d = F16::from_f32(random.sign() * varied(deviation, 256.0, random));
    }
}

impl RandomBlock for BlockQ4K {
    fn set_scales(&mut self, deviation: f32, random: &mut Random) {
        let d = deviation / (uniform(16.0) * SCALE_RMS);
        let scales = group_scales(random);
        (self.d, self.dmin) = (F16::from_f32(d), F16::from_f32(7.5 * d));
        self.scales = pack_scale_min(&scales, &scales);
    }
}

impl RandomBlock for BlockQ5K {
    fn set_scales(&mut self, deviation: f32, random: &mut Random) {
        let d = deviation / (uniform(32.0) * SCALE_RMS);
        let scales = group_scales(random);
        (self.d, self.dmin) = (F16::from_f32(d), F16::from_f32(15.5 * d));
        self.scales = pack_scale_min(&scales, &scales);
    }
}

impl RandomBlock for BlockQ6K {
    fn set_scales(&mut self, deviation: f32, random: &mut Random) {
        self.d = F16::from_f32(deviation / (uniform(64.0) * SCALE_RMS));
        for half in self.scales.chunks_exact_mut(8) {
            let signs = random.next();
            for (i, (scale, value)) in half.iter_mut().zip(group_scales(random)).enumerate() {
                *scale = if signs >> i & 1 == 0 {
                    value as i8
                } else {
                    -(value as i8)
                };
            }
        }
    }
}

/// Root mean square of the numbers from 8 to 15.
const NIBBLE_RMS: f32 = 11.73;

impl RandomBlock for BlockQ2K {
    fn set_scales(&mut self, deviation: f32, random: &mut Random) {
        let d = deviation / (uniform(4.0) * NIBBLE_RMS);
        (self.d, self.dmin) = (F16::from_f32(d), F16::from_f32(1.5 * d));
        for eight in self.scales.chunks_exact_mut(8) {
            for (scale, value) in eight.iter_mut().zip(group_scales(random)) {
                *scale = (8 | value & 7) * 0x11;
            }
        }
    }
}

/// Root mean square of the numbers from -32 to 31: scales of random bits.
const SIX_BIT_RMS: f32 = 18.48;
/// Root mean square of the numbers from -4 to 3.
const THREE_BIT_RMS: f32 = 2.345;

impl RandomBlock for BlockQ3K {
    fn set_scales(&mut self, deviation: f32, _random: &mut Random) {
        self.d = F16::from_f32(deviation / (THREE_BIT_RMS * SIX_BIT_RMS));
    }
}

/// Root mean square of the steps of IQ4.
const IQ4_RMS: f32 = 67.44;

impl RandomBlock for BlockIq4Nl {
    fn set_scales(&mut self, deviation: f32, random: &mut Random) {
        self.d = F16::from_f32(random.sign() * deviation / IQ4_RMS * (0.75 + 0.5 * random.unit()));
    }
}

impl RandomBlock for BlockIq4Xs {
    fn set_scales(&mut self, deviation: f32, _random: &mut Random) {
        self.d = F16::from_f32(deviation / (IQ4_RMS * SIX_BIT_RMS));
    }
}

/// Root mean square of the (doubled) values of an FP4 nibble.
const FP4_RMS: f32 = 5.852;

impl RandomBlock for BlockMxfp4 {
    fn set_scales(&mut self, deviation: f32, random: &mut Random) {
        // only powers of two are possible: the one below or the one above, so that the mean square comes out right
        let wanted = (deviation / FP4_RMS).max(f32::MIN_POSITIVE);
        let below = wanted.log2().floor();
        let share = ((wanted / below.exp2()).powi(2) - 1.0) / 3.0;
        let exponent = below + if random.unit() < share { 1.0 } else { 0.0 };
        self.e = (exponent + 128.0) as u8;
    }
}

/// Codes of the group scales of NVFP4: from 3/4 to 5/4 of 2.
const NVFP4_CODES: [u8; 8] = [0x3c, 0x3d, 0x3e, 0x3f, 0x40, 0x40, 0x41, 0x42];
/// Deviation of NVFP4 values before the second scale: the root mean square of the halved scales times [`FP4_RMS`].
pub(super) const NVFP4_DEVIATION: f32 = 0.9833 * FP4_RMS;

impl RandomBlock for BlockNvfp4 {
    /// The second scale gives the deviation.
    fn set_scales(&mut self, _deviation: f32, random: &mut Random) {
        let bits = random.next().to_le_bytes();
        for (code, byte) in self.d.iter_mut().zip(bits) {
            *code = NVFP4_CODES[usize::from(byte % 8)];
        }
    }
}
