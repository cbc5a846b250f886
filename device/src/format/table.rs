//! Types whose four bits index a table of sixteen signed bytes. The table is two constants and a shift: no memory.

use super::map_index;
use sparkinfer_gguf::blocks::{FP4_TABLE, IQ4_TABLE};

/// A table of sixteen signed bytes, lowest first.
type Table = [u64; 2];

const fn packed(values: &[i8; 16]) -> Table {
    let (mut table, mut i) = ([0u64; 2], 0);
    while i < 16 {
        table[i / 8] |= (values[i] as u8 as u64) << (8 * (i % 8));
        i += 1;
    }
    table
}

/// The non-linear 4-bit steps of IQ4_NL and IQ4_XS.
pub(super) const IQ4: Table = packed(&IQ4_TABLE);
/// Twice the E2M1 values of MXFP4 and NVFP4.
pub(super) const FP4: Table = packed(&FP4_TABLE);

/// The table's values for the nibbles (one a byte) of two words.
#[inline(always)]
pub(super) fn look_up(table: Table, nibbles: [u32; 2]) -> [f32; 8] {
    map_index(nibbles, |n| {
        let half = if n < 8 { table[0] } else { table[1] };
        f32::from((half >> (8 * (n & 7))) as i8)
    })
}
