//! The tensor types of a file, decoded where they are read.
//!
//! Each type is one small file that says how eight neighbouring weights of a row become floats, for
//! [`embed`](crate::embed), and, if it has blocks, how they are multiplied from shared memory ([`fragment::Fragments`]), for
//! [`gemv`](crate::gemv). That is all a new type needs, with its entry in `each_format!`. Rows
//! are as in the file; the loads are only as wide as the type's alignment in a row allows.

use cuda_std::prelude::*;

mod bf16;
pub mod cursor;
mod f16;
mod f32;
pub mod fragment;
mod half_split;
mod iq4_nl;
mod iq4_xs;
mod k_quant;
mod mxfp4;
mod nvfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod table;

pub use self::bf16::Bf16;
pub use self::f16::F16;
pub use self::f32::F32;
pub use iq4_nl::Iq4Nl;
pub use iq4_xs::Iq4Xs;
pub use mxfp4::Mxfp4;
pub use nvfp4::Nvfp4;
pub use q2_k::Q2K;
pub use q3_k::Q3K;
pub use q4_0::Q4_0;
pub use q4_1::Q4_1;
pub use q4_k::Q4K;
pub use q5_0::Q5_0;
pub use q5_1::Q5_1;
pub use q5_k::Q5K;
pub use q6_k::Q6K;
pub use q8_0::Q8_0;

pub(crate) use k_quant::six_bit_pair;

/// Hands a macro the list of all formats: the format, its tensor type, how
/// matrices of it are multiplied, and its kernels with what they say of themselves.
macro_rules! each_format {
    ($kernels:ident) => {
        $kernels! {
            F32, F32, plain:
                embed_f32 "Rows of an F32 table by token id.",
                gemv_f32 "Matrix × vector, F32 weights decoded on read.";
            F16, F16, plain:
                embed_f16 "Rows of an F16 table by token id.",
                gemv_f16 "Matrix × vector, F16 weights decoded on read.";
            Bf16, BF16, plain:
                embed_bf16 "Rows of a BF16 table by token id.",
                gemv_bf16 "Matrix × vector, BF16 weights decoded on read.";
            Q4_0, Q4_0, staged:
                embed_q4_0 "Rows of a Q4_0 table by token id.",
                gemv_q4_0 "Matrix × vector, Q4_0 weights decoded on read.";
            Q4_1, Q4_1, staged:
                embed_q4_1 "Rows of a Q4_1 table by token id.",
                gemv_q4_1 "Matrix × vector, Q4_1 weights decoded on read.";
            Q5_0, Q5_0, staged:
                embed_q5_0 "Rows of a Q5_0 table by token id.",
                gemv_q5_0 "Matrix × vector, Q5_0 weights decoded on read.";
            Q5_1, Q5_1, staged:
                embed_q5_1 "Rows of a Q5_1 table by token id.",
                gemv_q5_1 "Matrix × vector, Q5_1 weights decoded on read.";
            Q8_0, Q8_0, staged:
                embed_q8_0 "Rows of a Q8_0 table by token id.",
                gemv_q8_0 "Matrix × vector, Q8_0 weights decoded on read.";
            Q2K, Q2_K, staged:
                embed_q2_k "Rows of a Q2_K table by token id.",
                gemv_q2_k "Matrix × vector, Q2_K weights decoded on read.";
            Q3K, Q3_K, staged:
                embed_q3_k "Rows of a Q3_K table by token id.",
                gemv_q3_k "Matrix × vector, Q3_K weights decoded on read.";
            Q4K, Q4_K, staged:
                embed_q4_k "Rows of a Q4_K table by token id.",
                gemv_q4_k "Matrix × vector, Q4_K weights decoded on read.";
            Q5K, Q5_K, staged:
                embed_q5_k "Rows of a Q5_K table by token id.",
                gemv_q5_k "Matrix × vector, Q5_K weights decoded on read.";
            Q6K, Q6_K, staged:
                embed_q6_k "Rows of a Q6_K table by token id.",
                gemv_q6_k "Matrix × vector, Q6_K weights decoded on read.";
            Iq4Nl, IQ4_NL, staged:
                embed_iq4_nl "Rows of an IQ4_NL table by token id.",
                gemv_iq4_nl "Matrix × vector, IQ4_NL weights decoded on read.";
            Iq4Xs, IQ4_XS, staged:
                embed_iq4_xs "Rows of an IQ4_XS table by token id.",
                gemv_iq4_xs "Matrix × vector, IQ4_XS weights decoded on read.";
            Mxfp4, MXFP4, staged:
                embed_mxfp4 "Rows of an MXFP4 table by token id.",
                gemv_mxfp4 "Matrix × vector, MXFP4 weights decoded on read.";
            Nvfp4, NVFP4, staged:
                embed_nvfp4 "Rows of an NVFP4 table by token id.",
                gemv_nvfp4 "Matrix × vector, NVFP4 weights decoded on read.";
        }
    };
}
pub(crate) use each_format;

/// How a row of weights is read.
pub trait Format {
    /// Columns of a block: 1 for plain types, else a multiple of 8.
    const BLOCK: u32;
    /// Bytes of a block.
    const BYTES: u32;

    /// The weights of columns `8·piece` … `8·piece + 7`.
    ///
    /// # Safety
    /// `row` points to a row that has these columns, aligned as rows of this type are in a file.
    unsafe fn eight(row: *const u8, piece: u32) -> [f32; 8];

    /// The weight of one column; only rows of plain types have columns outside a whole piece of eight.
    ///
    /// # Safety
    /// As [`eight`](Self::eight); the row has this column.
    unsafe fn one(row: *const u8, column: u32) -> f32 {
        // SAFETY: passed on; types with blocks have whole pieces only.
        unsafe { Self::eight(row, column / 8)[column as usize % 8] }
    }

    /// Bytes of a row of `columns` weights.
    fn row_bytes(columns: u32) -> usize {
        columns as usize / Self::BLOCK as usize * Self::BYTES as usize
    }

    /// Start of the block that holds `piece`, and the piece's place in it.
    ///
    /// # Safety
    /// The row has this block.
    #[inline(always)]
    unsafe fn block(row: *const u8, piece: u32) -> (*const u8, u32) {
        let pieces = Self::BLOCK / 8;
        // SAFETY: the block lies within the row.
        (
            unsafe { row.add((piece / pieces * Self::BYTES) as usize) },
            piece % pieces,
        )
    }
}

/// The 16 bits at `p + at`.
///
/// # Safety
/// In bounds, and aligned to 2 bytes.
#[inline(always)]
pub(crate) unsafe fn u16_at(p: *const u8, at: u32) -> u32 {
    // SAFETY: the caller's.
    u32::from(unsafe { p.add(at as usize).cast::<u16>().read() })
}

/// The 32 bits at `p + at`.
///
/// # Safety
/// In bounds, and aligned to 4 bytes.
#[inline(always)]
pub(crate) unsafe fn u32_at(p: *const u8, at: u32) -> u32 {
    // SAFETY: the caller's.
    unsafe { p.add(at as usize).cast::<u32>().read() }
}

/// The 32 bits at `p + at`, aligned to 2 bytes only.
///
/// # Safety
/// In bounds, and aligned to 2 bytes.
#[inline(always)]
pub(crate) unsafe fn u32_at_even(p: *const u8, at: u32) -> u32 {
    // SAFETY: the caller's.
    unsafe { u16_at(p, at) | u16_at(p, at + 2) << 16 }
}

/// The 32 bits at `p + at`, not aligned.
///
/// # Safety
/// In bounds.
#[inline(always)]
pub(crate) unsafe fn u32_at_any(p: *const u8, at: u32) -> u32 {
    // SAFETY: the caller's.
    let byte = |i: u32| u32::from(unsafe { p.add((at + i) as usize).read() });
    byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24
}

/// Whether rows that begin at `row` may be read 16 bytes at a time.
#[inline(always)]
pub(crate) fn is_wide(row: *const u8) -> bool {
    row as usize & 15 == 0
}

/// The 16 bytes at `p + at`, past L1: weights are read once.
///
/// # Safety
/// In bounds, and aligned to 16 bytes.
#[inline(always)]
pub(crate) unsafe fn wide_at(p: *const u8, at: u32) -> [u32; 4] {
    // SAFETY: the caller's.
    unsafe { global::load_stream(p.add(at as usize).cast::<U32x4>()).0 }
}

/// `f` of each of the eight bytes of two words.
#[inline(always)]
pub(crate) fn map_index(words: [u32; 2], f: impl Fn(u32) -> f32) -> [f32; 8] {
    let byte = |i: u32| f(words[i as usize / 4] >> (8 * (i % 4)) & 255);
    [byte(0), byte(1), byte(2), byte(3), byte(4), byte(5), byte(6), byte(7)]
}

/// The unsigned bytes of two words as floats.
#[inline(always)]
pub(crate) fn bytes(low: u32, high: u32) -> [f32; 8] {
    let byte = |w: u32, k: u32| (w >> (8 * k) & 255) as f32;
    [
        byte(low, 0),
        byte(low, 1),
        byte(low, 2),
        byte(low, 3),
        byte(high, 0),
        byte(high, 1),
        byte(high, 2),
        byte(high, 3),
    ]
}

/// The signed bytes of two words as floats.
#[inline(always)]
pub(crate) fn signed_bytes(low: u32, high: u32) -> [f32; 8] {
    let byte = |w: u32, k: u32| ((w << (24 - 8 * k)) as i32 >> 24) as f32;
    [
        byte(low, 0),
        byte(low, 1),
        byte(low, 2),
        byte(low, 3),
        byte(high, 0),
        byte(high, 1),
        byte(high, 2),
        byte(high, 3),
    ]
}

/// `f` of each of eight values.
#[inline(always)]
pub(crate) fn map(v: [f32; 8], f: impl Fn(f32) -> f32) -> [f32; 8] {
    [f(v[0]), f(v[1]), f(v[2]), f(v[3]), f(v[4]), f(v[5]), f(v[6]), f(v[7])]
}
