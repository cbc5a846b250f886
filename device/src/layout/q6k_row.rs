//! Q6_K for dp4a: the four parts of a block in planes of their own, 8 rows together.
//!
//! A row's 210-byte blocks keep nothing aligned. Eight rows of `n` blocks make four planes whose starts are multiples of
//! 16: low bits at 0 (`128·n` bytes a row), high bits at `1024·n` (`64·n` a row), scales at `1536·n` (`16·n` a row), d at
//! `1664·n` (`2·n` a row). Within a block, lane `c` = 0…7 owns two 16-column sub-blocks ([`lane_sub_block`] and the one
//! four further), which share its 16 bytes of low nibbles:
//!
//! | plane | lane c's bytes of a block |
//! |---|---|
//! | low | `16·c`: the file's bytes; low nibbles the first sub-block, high nibbles the second |
//! | high | `8·c`: one word per sub-block, top bit inverted; columns 4i…4i+3 in bits 2i, 2i+1 of the four bytes |
//! | scales | `2·c`: one signed byte per sub-block |

use super::WeightLayout;
use super::bytes::{set_word, word};
use super::q6k_tile::{set_six_bits, six_bits};

/// Rows of Q6_K in planes: see the head of this file.
pub struct Q6KRow;

/// Offsets of the planes in a group of 8 rows of `blocks` blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// High 2 bits.
    pub high: usize,
    /// 8-bit scales.
    pub scales: usize,
    /// Block scales d.
    pub row_scales: usize,
}

impl Q6KRow {
    /// Where the planes of a group start; the low bits start at 0.
    pub const fn planes(blocks: usize) -> Planes {
        Planes {
            high: 1024 * blocks,
            scales: 1536 * blocks,
            row_scales: 1664 * blocks,
        }
    }
}

/// The first of the two 16-column sub-blocks of lane `c`; the second is four further.
pub const fn lane_sub_block(c: usize) -> usize {
    8 * (c >> 2) + (c & 3)
}

impl WeightLayout for Q6KRow {
    const NAME: &'static str = "Q6_K row";
    const GROUP_ROWS: usize = 8;
    const BLOCK_BYTES: usize = 210;

    fn put_block(group: &mut [u8], blocks: usize, row: usize, b: usize, block: &[u8]) {
        let (planes, i) = (Self::planes(blocks), row * blocks + b);
        group[128 * i..][..128].copy_from_slice(&block[..128]);
        for c in 0..8 {
            for second in 0..2 {
                let sub = lane_sub_block(c) + 4 * second;
                let high = (0..4).fold(0, |w, k| {
                    w | (six_bits(block, 16 * sub + 4 * k).1 ^ 0x0202_0202) << (2 * k)
                });
                set_word(group, planes.high + 64 * i + 8 * c + 4 * second, high);
                group[planes.scales + 16 * i + 2 * c + second] = block[192 + sub];
            }
        }
        group[planes.row_scales + 2 * i..][..2].copy_from_slice(&block[208..210]);
    }

    fn get_block(group: &[u8], blocks: usize, row: usize, b: usize, block: &mut [u8]) {
        let (planes, i) = (Self::planes(blocks), row * blocks + b);
        block.fill(0);
        block[..128].copy_from_slice(&group[128 * i..][..128]);
        for c in 0..8 {
            for second in 0..2 {
                let sub = lane_sub_block(c) + 4 * second;
                let high = word(group, planes.high + 64 * i + 8 * c + 4 * second);
                for k in 0..4 {
                    set_six_bits(block, 16 * sub + 4 * k, 0, high >> (2 * k) & 0x0303_0303 ^ 0x0202_0202);
                }
                block[192 + sub] = group[planes.scales + 16 * i + 2 * c + second];
            }
        }
        block[208..210].copy_from_slice(&group[planes.row_scales + 2 * i..][..2]);
    }
}
