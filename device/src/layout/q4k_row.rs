//! Q4_K for dp4a: a row's quants first, its headers behind them.
//!
//! A row of `n` blocks is `128·n` bytes of quants (each block's 128 bytes as in the file) and `16·n` bytes of headers
//! (d, dmin and the twelve scale bytes, as in the file). A lane's 16 quant bytes and its block's header are then one
//! aligned 16-byte load each, and neighbouring lanes read neighbouring bytes.

use super::WeightLayout;

/// Rows of Q4_K with quants and headers apart.
pub struct Q4KRow;

impl WeightLayout for Q4KRow {
    const NAME: &'static str = "Q4_K row";
    const GROUP_ROWS: usize = 1;
    const BLOCK_BYTES: usize = 144;

    fn put_block(group: &mut [u8], blocks: usize, _row: usize, b: usize, block: &[u8]) {
        group[128 * b..][..128].copy_from_slice(&block[16..144]);
        group[128 * blocks + 16 * b..][..16].copy_from_slice(&block[..16]);
    }

    fn get_block(group: &[u8], blocks: usize, _row: usize, b: usize, block: &mut [u8]) {
        block[16..144].copy_from_slice(&group[128 * b..][..128]);
        block[..16].copy_from_slice(&group[128 * blocks + 16 * b..][..16]);
    }
}
