//! Matrices in tiles of several types, as kernels know them.

use crate::tile::Tile;
use cuda_std::prelude::*;

/// A tile whose product may ask for sums of activations.
pub trait Summed: Tile {
    /// Whether it does: its weights have a zero point or minimums.
    const SUMS: bool;
}

macro_rules! kinds {
    ($($kind:ident = $ty:ident, $tile:ident, $sums:literal;)*) => {
        /// Weight types that the dense kernels take.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types)]
        #[repr(u32)]
        pub enum Kind {
            $(#[doc = concat!("[`", stringify!($tile), "`](crate::tile::", stringify!($tile), ").")] $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Bytes of a tile of 16 rows × 256 columns.
            #[must_use]
            pub const fn tile_bytes(self) -> usize {
                match self {
                    $(Self::$kind => <crate::tile::$tile as Tile>::BYTES,)*
                }
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Kind {
            /// The kind of a tensor type, if it has one.
            #[must_use]
            pub const fn of(ty: sparkinfer_gguf::types::TensorType) -> Option<Self> {
                match ty {
                    $(sparkinfer_gguf::types::TensorType::$ty => Some(Self::$kind),)*
                    _ => None,
                }
            }

            /// The tensor type.
            #[must_use]
            pub const fn ty(self) -> sparkinfer_gguf::types::TensorType {
                match self {
                    $(Self::$kind => sparkinfer_gguf::types::TensorType::$ty,)*
                }
            }

            /// The kind with that number.
            pub(super) fn numbered(number: u32) -> Option<Self> {
                Self::ALL.get(number as usize).copied()
            }
        }

        $(impl Summed for crate::tile::$tile {
            const SUMS: bool = $sums;
        })*
    };
}

kinds! {
    Q4_0 = Q4_0, Q4_0Tile, true;
    Q4_1 = Q4_1, Q4_1Tile, true;
    Q5_0 = Q5_0, Q5_0Tile, true;
    Q5_1 = Q5_1, Q5_1Tile, true;
    Q8_0 = Q8_0, Q8_0Tile, false;
    Q4K = Q4_K, Q4KTile, true;
    Q5K = Q5_K, Q5KTile, true;
    Q6K = Q6_K, Q6KTile, false;
}

/// Runs `$body` with `$tile` as the tile type of `$kind`, the same for a whole block.
macro_rules! with_kind {
    ($kind:expr, $tile:ident => $body:expr) => {
        with_kind!(@ $kind, $tile => $body;
            Q4_0 Q4_0Tile, Q4_1 Q4_1Tile, Q5_0 Q5_0Tile, Q5_1 Q5_1Tile, Q8_0 Q8_0Tile, Q4K Q4KTile, Q5K Q5KTile, Q6K Q6KTile)
    };
    (@ $kind:expr, $tile:ident => $body:expr; $last:ident $last_tile:ident) => {{
        type $tile = $crate::tile::$last_tile;
        $body
    }};
    (@ $kind:expr, $tile:ident => $body:expr; $one:ident $one_tile:ident, $($more:tt)*) => {
        if $kind == $crate::dense::matrix::Kind::$one as u32 {
            type $tile = $crate::tile::$one_tile;
            $body
        } else {
            with_kind!(@ $kind, $tile => $body; $($more)*)
        }
    };
}
pub(crate) use with_kind;

/// A tiled matrix in device memory: tile (row group, column block) at `(group · blocks + block) · tile bytes`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Matrix {
    /// The first tile, 16-byte aligned; of floats, which are [`Rare`](crate::prefill::rare::Rare), the first row.
    pub tiles: DevicePtr<u8>,
    /// Added to the result, a float a row; or null.
    pub bias: DevicePtr<f32>,
    /// Multiplies the result before that: one float, or one for each matrix of a stack; or null. Only the prompts' product of
    /// [`Rare`](crate::prefill::rare::Rare) types has it.
    pub scale: DevicePtr<f32>,
    /// Groups of 16 rows.
    pub groups: u32,
    /// A [`Kind`], or where it is said a [`Rare`](crate::prefill::rare::Rare).
    pub kind: u32,
}

impl Matrix {
    /// The bias of the lane's row `16 · group + lane % 16`, 0 where there is none.
    ///
    /// # Safety
    /// The matrix has the row.
    #[inline(always)]
    pub(crate) unsafe fn bias_of(&self, group: u32, lane: u32) -> f32 {
        if self.bias.is_null() {
            return 0.0;
        }
        // SAFETY: the caller's.
        unsafe { global::load(self.bias.as_ptr().add((16 * group + (lane & 15)) as usize)) }
    }

    /// The scale of matrix `index` of a stack, 1 where there is none.
    ///
    /// # Safety
    /// The stack has the matrix.
    #[inline(always)]
    pub(crate) unsafe fn scale_of(&self, index: u32) -> f32 {
        if self.scale.is_null() {
            return 1.0;
        }
        // SAFETY: the caller's.
        unsafe { global::load(self.scale.as_ptr().add(index as usize)) }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Matrix {
    /// The matrix's kind.
    ///
    /// # Errors
    /// A number that is no kind's.
    pub(crate) fn check(&self, kernel: &'static str) -> Result<Kind, crate::shape::ShapeError> {
        let rule = || format!("weights of kind {}, which is none", self.kind);
        Kind::numbered(self.kind).ok_or_else(|| crate::shape::ShapeError::new(kernel, rule()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_types_and_tiles_belong_together() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::of(kind.ty()), Some(kind));
            assert_eq!(Kind::numbered(kind as u32), Some(kind));
            let bytes = with_kind!(kind as u32, T => <T as Tile>::BYTES);
            assert_eq!(bytes, kind.tile_bytes(), "{kind:?}");
            assert_eq!(
                bytes,
                4096 / kind.ty().block_len() * kind.ty().block_bytes(),
                "{kind:?}"
            );
        }
    }
}
