//! Tensor types: ids as stored in a file, names, block sizes.

use core::fmt;

/// How many values a K-quant (or IQ4_XS) super-block holds.
pub const QK_K: usize = 256;

/// The storage type of a tensor. The discriminant is the id in the file.
///
/// Every type whose layout is known is listed, so that a file holding it can be inspected; [`TensorType::is_supported`]
/// tells which ones can be dequantised.
#[allow(non_camel_case_types, missing_docs)] // the names are the format's own and need no words
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u32)]
pub enum TensorType {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    I8 = 24,
    I16 = 25,
    I32 = 26,
    I64 = 27,
    F64 = 28,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
    NVFP4 = 40,
}

/// Type, name, values per block, bytes per block.
type Row = (TensorType, &'static str, usize, usize);

/// One row per type, in the order of the ids.
const TABLE: [Row; 31] = {
    use TensorType::*;
    [
        (F32, "F32", 1, 4),
        (F16, "F16", 1, 2),
        (Q4_0, "Q4_0", 32, 18),
        (Q4_1, "Q4_1", 32, 20),
        (Q5_0, "Q5_0", 32, 22),
        (Q5_1, "Q5_1", 32, 24),
        (Q8_0, "Q8_0", 32, 34),
        (Q2_K, "Q2_K", QK_K, 84),
        (Q3_K, "Q3_K", QK_K, 110),
        (Q4_K, "Q4_K", QK_K, 144),
        (Q5_K, "Q5_K", QK_K, 176),
        (Q6_K, "Q6_K", QK_K, 210),
        (IQ2_XXS, "IQ2_XXS", QK_K, 66),
        (IQ2_XS, "IQ2_XS", QK_K, 74),
        (IQ3_XXS, "IQ3_XXS", QK_K, 98),
        (IQ1_S, "IQ1_S", QK_K, 50),
        (IQ4_NL, "IQ4_NL", 32, 18),
        (IQ3_S, "IQ3_S", QK_K, 110),
        (IQ2_S, "IQ2_S", QK_K, 82),
        (IQ4_XS, "IQ4_XS", QK_K, 136),
        (I8, "I8", 1, 1),
        (I16, "I16", 1, 2),
        (I32, "I32", 1, 4),
        (I64, "I64", 1, 8),
        (F64, "F64", 1, 8),
        (IQ1_M, "IQ1_M", QK_K, 56),
        (BF16, "BF16", 1, 2),
        (TQ1_0, "TQ1_0", QK_K, 54),
        (TQ2_0, "TQ2_0", QK_K, 66),
        (MXFP4, "MXFP4", 32, 17),
        (NVFP4, "NVFP4", 64, 36),
    ]
};

impl TensorType {
    /// Every known type, in the order of the ids.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The type with this id, if it is known. Activation-only types (Q8_1, Q8_K) and removed ones are not.
    pub const fn from_id(id: u32) -> Option<Self> {
        let mut i = 0;
        while i < TABLE.len() {
            if TABLE[i].0 as u32 == id {
                return Some(TABLE[i].0);
            }
            i += 1;
        }
        None
    }

    /// The type with this name (`"Q4_K"`), case-insensitive.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE
            .iter()
            .find(|row| row.1.eq_ignore_ascii_case(name))
            .map(|row| row.0)
    }

    /// The id as stored in a file.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The usual name, as in `"Q4_K"`.
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// Values per block (1 for plain numbers).
    pub const fn block_len(self) -> usize {
        self.row().2
    }

    /// Bytes per block.
    pub const fn block_bytes(self) -> usize {
        self.row().3
    }

    /// Bytes of a row of `len` values; `None` when `len` is not a multiple of the block or the size overflows.
    pub const fn row_bytes(self, len: usize) -> Option<usize> {
        let row = self.row();
        if !len.is_multiple_of(row.2) {
            return None;
        }
        (len / row.2).checked_mul(row.3)
    }

    /// Whether [`crate::dequant`] knows the type's values.
    pub const fn is_supported(self) -> bool {
        use TensorType::*;
        !matches!(
            self,
            IQ2_XXS | IQ2_XS | IQ3_XXS | IQ1_S | IQ3_S | IQ2_S | IQ1_M | TQ1_0 | TQ2_0
        )
    }

    /// Whether values share scales in blocks (false for plain numbers).
    pub const fn is_quantized(self) -> bool {
        self.block_len() > 1
    }

    const fn row(self) -> &'static Row {
        let mut i = 0;
        while i + 1 < TABLE.len() && TABLE[i].0 as u32 != self as u32 {
            i += 1;
        }
        &TABLE[i]
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_round_trip() {
        for ty in TensorType::all() {
            assert_eq!(TensorType::from_id(ty.id()), Some(ty));
            assert_eq!(TensorType::from_name(ty.name()), Some(ty));
            assert_eq!(format!("{ty:?}"), ty.name());
        }
        assert_eq!(TensorType::from_name("q4_k"), Some(TensorType::Q4_K));
    }

    #[test]
    fn removed_and_activation_types_are_unknown() {
        for id in [4, 5, 9, 15, 31, 32, 33, 36, 37, 38, 41, 42, 43, u32::MAX] {
            assert_eq!(TensorType::from_id(id), None, "id {id}");
        }
    }

    #[test]
    fn row_bytes_wants_whole_blocks() {
        assert_eq!(TensorType::Q4_K.row_bytes(2048), Some(1152));
        assert_eq!(TensorType::Q4_K.row_bytes(2047), None);
        assert_eq!(TensorType::Q6_K.row_bytes(0), Some(0));
        assert_eq!(TensorType::F64.row_bytes(usize::MAX), None);
    }
}
