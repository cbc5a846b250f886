//! Block layouts, byte for byte as in a file.
//!
//! Every struct has alignment 1 (multi-byte fields are byte arrays), because blocks lie at any address inside a mapped
//! file: a row's bytes can always be viewed as blocks with [`as_blocks`], on little- and big-endian machines alike.
//!
//! Nibble order of the 32-value types ("halves"): byte `i` of `qs` holds value `i` in its low and value `i + 16` in its
//! high nibble. Value `i` of a block is written `y[i]` below, `n` is its stored quant.

use bytemuck::{Pod, Zeroable};

use crate::types::{QK_K, TensorType};

/// A half-precision number at any address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct F16([u8; 2]);

impl F16 {
    /// From the sixteen bits of an IEEE half.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits.to_le_bytes())
    }

    /// The sixteen bits of the IEEE half.
    pub const fn to_bits(self) -> u16 {
        u16::from_le_bytes(self.0)
    }

    /// Rounded to nearest, ties to even.
    pub fn from_f32(value: f32) -> Self {
        Self::from_bits(half::f16::from_f32(value).to_bits())
    }

    /// The exact value.
    pub fn to_f32(self) -> f32 {
        half::f16::from_bits(self.to_bits()).to_f32()
    }
}

/// A block of quantised values: its type and size.
pub trait Block: Pod {
    /// The tensor type made of these blocks.
    const TYPE: TensorType;
    /// Values per block.
    const LEN: usize = Self::TYPE.block_len();
}

/// Views a row's bytes as blocks; `None` when the length is no multiple of the block.
pub fn as_blocks<B: Block>(bytes: &[u8]) -> Option<&[B]> {
    bytemuck::try_cast_slice(bytes).ok()
}

/// Views a row's bytes as blocks to write; `None` when the length is no multiple of the block.
pub fn as_blocks_mut<B: Block>(bytes: &mut [u8]) -> Option<&mut [B]> {
    bytemuck::try_cast_slice_mut(bytes).ok()
}

/// Declares block structs and checks each one's size against the type table.
macro_rules! blocks {
    ($($(#[$doc:meta])* $name:ident: $ty:ident { $($(#[$field_doc:meta])* $field:ident: $field_ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Pod, Zeroable)]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $field_ty,)* }

        impl Block for $name {
            const TYPE: TensorType = TensorType::$ty;
        }

        const _: () = assert!(
            size_of::<$name>() == TensorType::$ty.block_bytes() && align_of::<$name>() == 1,
            "block size differs from the type table"
        );
    )*};
}

blocks! {
    /// 32 values, `y = d (n - 8)`, nibbles in halves.
    BlockQ4_0: Q4_0 {
        /// Scale.
        d: F16,
        /// Nibbles in halves.
        qs: [u8; 16],
    }

    /// 32 values, `y = d n + m`, nibbles in halves.
    BlockQ4_1: Q4_1 {
        /// Scale.
        d: F16,
        /// Offset.
        m: F16,
        /// Nibbles in halves.
        qs: [u8; 16],
    }

    /// 32 values, `y = d (n - 16)`, five bits: nibble in halves, bit `i` of `qh` on top.
    BlockQ5_0: Q5_0 {
        /// Scale.
        d: F16,
        /// Fifth bits, little-endian: bit `i` belongs to value `i`.
        qh: [u8; 4],
        /// Nibbles in halves.
        qs: [u8; 16],
    }

    /// 32 values, `y = d n + m`, five bits as in [`BlockQ5_0`].
    BlockQ5_1: Q5_1 {
        /// Scale.
        d: F16,
        /// Offset.
        m: F16,
        /// Fifth bits, little-endian: bit `i` belongs to value `i`.
        qh: [u8; 4],
        /// Nibbles in halves.
        qs: [u8; 16],
    }

    /// 32 values, `y = d n`.
    BlockQ8_0: Q8_0 {
        /// Scale.
        d: F16,
        /// Values in order.
        qs: [i8; 32],
    }

    /// 256 values in 16 groups of 16, `y = d sc n - dmin mn`, two bits.
    BlockQ2K: Q2_K {
        /// Per group: scale in the low nibble, minimum in the high one.
        scales: [u8; 16],
        /// Byte `32 h + l` holds values `128 h + 32 g + l`, bits `2 g` and `2 g + 1`.
        qs: [u8; 64],
        /// Scale of the scales.
        d: F16,
        /// Scale of the minimums.
        dmin: F16,
    }

    /// 256 values in 16 groups of 16, `y = d sc n`, three bits, signed.
    BlockQ3K: Q3_K {
        /// Bit `4 h + g` of byte `l`: value `128 h + 32 g + l` is not lowered by 4.
        hmask: [u8; 32],
        /// Low two bits, order as in [`BlockQ2K`].
        qs: [u8; 64],
        /// Sixteen packed six-bit scales, see [`BlockQ3K::scale`].
        scales: [u8; 12],
        /// Scale of the scales.
        d: F16,
    }

    /// 256 values in 8 groups of 32, `y = d sc n - dmin mn`, four bits.
    BlockQ4K: Q4_K {
        /// Scale of the scales.
        d: F16,
        /// Scale of the minimums.
        dmin: F16,
        /// Eight packed pairs of six-bit scale and minimum, see [`scale_min`].
        scales: [u8; 12],
        /// Byte `32 (j / 2) + l` holds value `32 j + l`: low nibble for even `j`, high for odd.
        qs: [u8; 128],
    }

    /// 256 values in 8 groups of 32, `y = d sc n - dmin mn`, five bits.
    BlockQ5K: Q5_K {
        /// Scale of the scales.
        d: F16,
        /// Scale of the minimums.
        dmin: F16,
        /// Eight packed pairs of six-bit scale and minimum, see [`scale_min`].
        scales: [u8; 12],
        /// Fifth bits: bit `j` of byte `l` belongs to value `32 j + l`.
        qh: [u8; 32],
        /// Low four bits, order as in [`BlockQ4K`].
        qs: [u8; 128],
    }

    /// 256 values in 16 groups of 16, `y = d sc (n - 32)`, six bits.
    BlockQ6K: Q6_K {
        /// Low four bits, see [`BlockQ6K::quant`].
        ql: [u8; 128],
        /// High two bits: byte `32 h + l` holds values `128 h + 32 g + l` at bit `2 g`.
        qh: [u8; 64],
        /// Scale of each group of 16.
        scales: [i8; 16],
        /// Scale of the scales.
        d: F16,
    }

    /// 32 values, `y = d T[n]` with [`IQ4_TABLE`], nibbles in halves.
    BlockIq4Nl: IQ4_NL {
        /// Scale.
        d: F16,
        /// Nibbles in halves.
        qs: [u8; 16],
    }

    /// 256 values in 8 groups of 32, `y = d (ls - 32) T[n]` with [`IQ4_TABLE`], nibbles in halves within a group.
    BlockIq4Xs: IQ4_XS {
        /// Scale of the scales.
        d: F16,
        /// High two bits of the group scales, little-endian, group `k` at bit `2 k`.
        scales_h: [u8; 2],
        /// Low four bits of the group scales, two a byte.
        scales_l: [u8; 4],
        /// Sixteen bytes a group, nibbles in halves.
        qs: [u8; 128],
    }

    /// 32 values, `y = 2^(e - 128) F[n]` with [`FP4_TABLE`], nibbles in halves.
    BlockMxfp4: MXFP4 {
        /// Exponent of the scale (E8M0).
        e: u8,
        /// Nibbles in halves.
        qs: [u8; 16],
    }

    /// 64 values in 4 groups of 16, `y = ue(d) F[n]` with [`FP4_TABLE`] and [`ue4m3_half`].
    ///
    /// A tensor of this type may come with a second, per-tensor (or per-expert) scale in a tensor of its own.
    BlockNvfp4: NVFP4 {
        /// UE4M3 scale of each group.
        d: [u8; 4],
        /// Eight bytes a group: byte `j` holds value `j` in its low and `j + 8` in its high nibble.
        qs: [u8; 32],
    }
}

/// The sixteen values that an IQ4 nibble stands for.
pub const IQ4_TABLE: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The sixteen values that an FP4 (E2M1) nibble stands for, doubled so that they are integers.
pub const FP4_TABLE: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half of an unsigned E4M3 number (the half undoes the doubling of [`FP4_TABLE`]).
///
/// Bytes 0 and 0x7f are zero; the sign bit is ignored otherwise.
#[inline]
pub fn ue4m3_half(byte: u8) -> f32 {
    if byte == 0 || byte == 0x7f {
        return 0.0;
    }
    let (exponent, mantissa) = (u32::from(byte >> 3 & 15), u32::from(byte & 7));
    if exponent == 0 {
        return mantissa as f32 * (1.0 / 1024.0);
    }
    // (1 + m/8) 2^(e-7) / 2: exponent re-biased from 7 to 127, one less for the half
    f32::from_bits((exponent + 127 - 7 - 1) << 23 | mantissa << 20)
}

/// `2^(e - 128)`, the scale of an MXFP4 block for use with the doubled [`FP4_TABLE`] (subnormal for `e` of 0 and 1).
#[inline]
pub fn e8m0_half(e: u8) -> f32 {
    match e {
        0 => f32::from_bits(0x0020_0000),
        1 => f32::from_bits(0x0040_0000),
        _ => f32::from_bits(u32::from(e - 1) << 23),
    }
}

/// Six-bit scale and minimum of group `j` (0 to 7) of a Q4_K or Q5_K block.
///
/// Bytes 0 to 3 hold the scales of groups 0 to 3 and, on top, two bits each of those of groups 4 to 7; bytes 4 to 7 the
/// same of the minimums; bytes 8 to 11 the low nibbles of groups 4 to 7, scale low, minimum high.
#[inline]
pub const fn scale_min(scales: &[u8; 12], j: usize) -> (u8, u8) {
    if j < 4 {
        return (scales[j] & 63, scales[j + 4] & 63);
    }
    let low = scales[j + 4];
    (low & 15 | (scales[j - 4] >> 6) << 4, low >> 4 | (scales[j] >> 6) << 4)
}

/// Packs eight six-bit scales and minimums: the inverse of [`scale_min`]. Values above 63 are cut.
pub const fn pack_scale_min(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    let mut j = 0;
    while j < 4 {
        packed[j] = scales[j] & 63 | (scales[j + 4] >> 4) << 6;
        packed[j + 4] = mins[j] & 63 | (mins[j + 4] >> 4) << 6;
        packed[j + 8] = scales[j + 4] & 15 | (mins[j + 4] & 15) << 4;
        j += 1;
    }
    packed
}

/// Nibble `i` of 16 bytes that hold 32 values in halves.
#[inline]
pub(crate) const fn half_nibble(qs: &[u8; 16], i: usize) -> u8 {
    if i < 16 { qs[i] & 15 } else { qs[i - 16] >> 4 }
}

/// Position of value `i` in a two-bit array of a K-quant: byte index and shift.
#[inline]
pub(crate) const fn two_bit_position(i: usize) -> (usize, usize) {
    (32 * (i / 128) + i % 32, 2 * (i % 128 / 32))
}

impl BlockQ3K {
    /// Signed scale of group `k` (0 to 15), -32 to 31.
    #[inline]
    pub const fn scale(&self, k: usize) -> i8 {
        let low = if k < 8 {
            self.scales[k] & 15
        } else {
            self.scales[k - 8] >> 4
        };
        let high = self.scales[8 + k % 4] >> (2 * (k / 4)) & 3;
        (low | high << 4) as i8 - 32
    }

    /// Signed quant of value `i`, -4 to 3.
    #[inline]
    pub const fn quant(&self, i: usize) -> i8 {
        let (byte, shift) = two_bit_position(i);
        let low = (self.qs[byte] >> shift & 3) as i8;
        if self.hmask[i % 32] >> (i / 32) & 1 == 0 {
            low - 4
        } else {
            low
        }
    }
}

impl BlockQ2K {
    /// Quant of value `i`, 0 to 3.
    #[inline]
    pub const fn quant(&self, i: usize) -> u8 {
        let (byte, shift) = two_bit_position(i);
        self.qs[byte] >> shift & 3
    }
}

impl BlockQ4K {
    /// Quant of value `i`, 0 to 15.
    #[inline]
    pub const fn quant(&self, i: usize) -> u8 {
        self.qs[32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15
    }

    /// Quants of group `j` (0 to 7).
    #[inline]
    pub fn group(&self, j: usize) -> [u8; 32] {
        nibbles(&self.qs, j)
    }
}

/// The 32 values of group `j` of the nibbles of a Q4_K or Q5_K block.
#[inline]
fn nibbles(qs: &[u8; 128], j: usize) -> [u8; 32] {
    let (bytes, shift) = (&qs[32 * (j / 2)..][..32], 4 * (j % 2));
    core::array::from_fn(|l| bytes[l] >> shift & 15)
}

impl BlockQ5K {
    /// Quant of value `i`, 0 to 31.
    #[inline]
    pub const fn quant(&self, i: usize) -> u8 {
        let low = self.qs[32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15;
        low | (self.qh[i % 32] >> (i / 32) & 1) << 4
    }

    /// Quants of group `j` (0 to 7).
    #[inline]
    pub fn group(&self, j: usize) -> [u8; 32] {
        let low = nibbles(&self.qs, j);
        core::array::from_fn(|l| low[l] | (self.qh[l] >> j & 1) << 4)
    }
}

impl BlockQ6K {
    /// Signed quant of value `i`, -32 to 31.
    #[inline]
    pub const fn quant(&self, i: usize) -> i8 {
        let byte = self.ql[64 * (i / 128) + i % 64];
        let low = if i % 128 < 64 { byte & 15 } else { byte >> 4 };
        let (high, shift) = two_bit_position(i);
        (low | (self.qh[high] >> shift & 3) << 4) as i8 - 32
    }

    /// Signed quants of group `k` (0 to 15).
    #[inline]
    pub fn group(&self, k: usize) -> [i8; 16] {
        let (low, low_shift) = (&self.ql[64 * (k / 8) + 16 * (k % 4)..][..16], k % 8 / 4 * 4);
        let (high, shift) = two_bit_position(16 * k);
        let high = &self.qh[high..][..16];
        core::array::from_fn(|l| (low[l] >> low_shift & 15 | (high[l] >> shift & 3) << 4) as i8 - 32)
    }
}

impl BlockQ5_0 {
    /// Quant of value `i`, 0 to 31.
    #[inline]
    pub const fn quant(&self, i: usize) -> u8 {
        half_nibble(&self.qs, i) | (self.qh[i / 8] >> (i % 8) & 1) << 4
    }
}

impl BlockQ5_1 {
    /// Quant of value `i`, 0 to 31.
    #[inline]
    pub const fn quant(&self, i: usize) -> u8 {
        half_nibble(&self.qs, i) | (self.qh[i / 8] >> (i % 8) & 1) << 4
    }
}

impl BlockIq4Xs {
    /// Signed scale of group `k` (0 to 7), -32 to 31.
    #[inline]
    pub const fn scale(&self, k: usize) -> i8 {
        let low = self.scales_l[k / 2] >> (4 * (k % 2)) & 15;
        let high = self.scales_h[k / 4] >> (2 * (k % 4)) & 3;
        (low | high << 4) as i8 - 32
    }
}

const _: () = assert!(QK_K == 256, "the K-quant layouts above are written for 256 values");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_min_inverts_packing() {
        let scales = [1, 63, 17, 32, 62, 5, 48, 0];
        let mins = [9, 0, 63, 31, 16, 47, 3, 60];
        let packed = pack_scale_min(&scales, &mins);
        for j in 0..8 {
            assert_eq!(scale_min(&packed, j), (scales[j], mins[j]), "group {j}");
        }
    }

    #[test]
    fn groups_are_their_quants() {
        let bytes: [u8; 512] = core::array::from_fn(|i| (i * 167 + i / 3) as u8);
        let blocks = (
            &as_blocks::<BlockQ4K>(&bytes[..144]).expect("a block")[0],
            &as_blocks::<BlockQ5K>(&bytes[..176]).expect("a block")[0],
            &as_blocks::<BlockQ6K>(&bytes[..210]).expect("a block")[0],
        );
        for i in 0..QK_K {
            assert_eq!(blocks.0.group(i / 32)[i % 32], blocks.0.quant(i), "Q4_K, {i}");
            assert_eq!(blocks.1.group(i / 32)[i % 32], blocks.1.quant(i), "Q5_K, {i}");
            assert_eq!(blocks.2.group(i / 16)[i % 16], blocks.2.quant(i), "Q6_K, {i}");
        }
    }

    #[test]
    fn e8m0_is_a_power_of_two() {
        for e in 0..=255u8 {
            assert_eq!(f64::from(e8m0_half(e)), 2f64.powi(i32::from(e) - 128), "e = {e}");
        }
    }

    #[test]
    fn ue4m3_matches_its_definition() {
        for byte in 0..=255u8 {
            let (e, m) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
            let full = match (byte, e) {
                (0 | 0x7f, _) => 0.0,
                (_, 0) => m * 2f64.powi(-9),
                _ => (1.0 + m / 8.0) * 2f64.powi(e - 7),
            };
            assert_eq!(f64::from(ue4m3_half(byte)), 0.5 * full, "byte {byte}");
        }
    }

    #[test]
    fn blocks_can_lie_at_odd_addresses() {
        let bytes = [7u8; 1 + 2 * 144];
        let blocks = as_blocks::<BlockQ4K>(&bytes[1..]).expect("two blocks");
        assert_eq!(blocks.len(), 2);
        assert!(as_blocks::<BlockQ4K>(&bytes).is_none());
    }
}
