//! Tensor cores.

use super::{read, write};
use crate::prelude::*;

/// Registers of A and B for a lane, from its own input and its neighbour's.
#[inline(always)]
fn operands([a, b, c, d]: [u32; 4]) -> ([u32; 4], [u32; 2]) {
    ([a, b, c, d], [a.rotate_left(7) ^ d, b.rotate_left(9) ^ c])
}

/// Integer products, with signed and with unsigned A.
#[kernel]
pub unsafe fn selftest_integer_mma(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let words = unsafe { read(input) };
    let (a, b) = operands(words);
    let s = mma::m16n8k32_s8(a, b, words.map(|word| word as i32));
    let u = mma::m16n8k32_u8_s8(a, b, s);
    let results = [s[0], s[1], s[2], s[3], u[0], u[1], u[2], u[3]];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results.map(|sum| sum as u32)) }
}

/// Two 16-bit floats from 0.5 to 1 by their bits, with both signs.
#[inline(always)]
fn halves(word: u32, exponent: u32, mask: u32) -> u32 {
    word & (mask | 0x8000_8000) | exponent
}

/// Float products of f16 and bf16.
#[kernel]
pub unsafe fn selftest_float_mma(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let words = unsafe { read(input) };
    let (a, b) = operands(words);
    let c = words.map(|word| (word >> 8) as f32 * 1e-7);
    let f = mma::m16n8k16_f16(
        a.map(|w| halves(w, 0x3800_3800, 0x03ff_03ff)),
        b.map(|w| halves(w, 0x3800_3800, 0x03ff_03ff)),
        c,
    );
    let g = mma::m16n8k16_bf16(
        a.map(|w| halves(w, 0x3f00_3f00, 0x007f_007f)),
        b.map(|w| halves(w, 0x3f00_3f00, 0x007f_007f)),
        f,
    );
    let results = [f[0], f[1], f[2], f[3], g[0], g[1], g[2], g[3]];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results.map(f32::to_bits)) }
}

/// 8×8 matrices from shared memory: warp w reads what both warps stored.
#[kernel]
pub unsafe fn selftest_matrices(input: *const u32, output: *mut u32) {
    // SAFETY: the shape of all self-tests.
    let words = unsafe { read(input) };
    let (i, lane) = (thread::index_in_block(), warp::lane());
    // Row r of matrix m is the 16 bytes that thread 8m + r stores.
    let rows = shared::dynamic::<U32x4>(0, 64);
    rows.store(i, U32x4(words));
    thread::sync_threads();
    let row = |matrix: u32| rows.address_of(8 * ((matrix + lane / 8) % 8) + lane % 8);
    let four = mma::load_matrix_x4(row(0));
    let four_turned = mma::load_matrix_x4_trans(row(4));
    let two = mma::load_matrix_x2(row(2));
    let two_turned = mma::load_matrix_x2_trans(row(1));
    let one = mma::load_matrix_x1(row(7));
    let one_turned = mma::load_matrix_x1_trans(row(6));
    let results = [
        four[0] ^ four[3],
        four[1],
        four[2],
        four_turned[0] ^ four_turned[2],
        four_turned[1].wrapping_add(four_turned[3]),
        two[0].wrapping_sub(two[1]),
        two_turned[0].wrapping_sub(two_turned[1]),
        one[0] ^ one_turned[0].rotate_left(5),
    ];
    // SAFETY: the shape of all self-tests.
    unsafe { write(output, results) }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) mod expected {
    use super::super::{THREADS, Words};
    use super::{halves, operands};
    use core::array::from_fn;
    use half::{bf16, f16};

    type Input = [[u32; 4]; THREADS];

    /// The matrices A (16 × K) and B (K × 8) that a warp's registers make up, as `PER` elements a register.
    struct Tiles<const K: usize> {
        a: [[f64; K]; 16],
        b: [[f64; 8]; K],
    }

    /// Fills the tiles register by register, as the table in [`crate::mma`] says.
    fn tiles<const K: usize>(
        warp: &[[u32; 4]],
        a_value: impl Fn(u32, usize) -> f64,
        b_value: impl Fn(u32, usize) -> f64,
    ) -> Tiles<K> {
        let per = K / 8;
        let mut tiles = Tiles {
            a: [[0.0; K]; 16],
            b: [[0.0; 8]; K],
        };
        for (lane, &words) in warp.iter().enumerate() {
            let (g, t) = (lane / 4, lane % 4);
            let (a, b) = operands(words);
            for e in 0..per {
                for (r, &register) in a.iter().enumerate() {
                    tiles.a[g + 8 * (r % 2)][4 * per * (r / 2) + per * t + e] = a_value(register, e);
                }
                for (r, &register) in b.iter().enumerate() {
                    tiles.b[4 * per * r + per * t + e][g] = b_value(register, e);
                }
            }
        }
        tiles
    }

    /// D = A·B + C in f64, dealt out to the lanes.
    fn product<const K: usize>(tiles: &Tiles<K>, c: impl Fn(usize, usize) -> f64) -> [[f64; 4]; 32] {
        from_fn(|lane| {
            from_fn(|r| {
                let (row, column) = (lane / 4 + 8 * (r / 2), 2 * (lane % 4) + r % 2);
                c(lane, r) + (0..K).map(|k| tiles.a[row][k] * tiles.b[k][column]).sum::<f64>()
            })
        })
    }

    fn both_warps(input: &Input, warp: impl Fn(&[[u32; 4]]) -> [[u32; 8]; 32]) -> Words {
        let halves = [warp(&input[..32]), warp(&input[32..])];
        from_fn(|i| halves[i / 32][i % 32])
    }

    pub fn selftest_integer_mma(input: &Input) -> Words {
        let signed = |word: u32, e: usize| f64::from(word.to_le_bytes()[e] as i8);
        let unsigned = |word: u32, e: usize| f64::from(word.to_le_bytes()[e]);
        both_warps(input, |warp| {
            let wrap = |x: f64| x as i64 as i32;
            let s = product(&tiles::<32>(warp, signed, signed), |lane, r| {
                f64::from(warp[lane][r] as i32)
            });
            let s = s.map(|d| d.map(wrap));
            let u = product(&tiles::<32>(warp, unsigned, signed), |lane, r| f64::from(s[lane][r]));
            from_fn(|lane| {
                from_fn(|i| {
                    if i < 4 {
                        s[lane][i] as u32
                    } else {
                        wrap(u[lane][i - 4]) as u32
                    }
                })
            })
        })
    }

    pub fn selftest_float_mma(input: &Input) -> Words {
        let upper = |word: u32, e: usize| (word >> (16 * e)) as u16;
        let f16s = |w: u32, e: usize| f16::from_bits(upper(halves(w, 0x3800_3800, 0x03ff_03ff), e)).to_f64();
        let bf16s = |w: u32, e: usize| bf16::from_bits(upper(halves(w, 0x3f00_3f00, 0x007f_007f), e)).to_f64();
        both_warps(input, |warp| {
            let f = product(&tiles::<16>(warp, f16s, f16s), |lane, r| {
                f64::from((warp[lane][r] >> 8) as f32 * 1e-7)
            });
            let g = product(&tiles::<16>(warp, bf16s, bf16s), |lane, r| f[lane][r]);
            from_fn(|lane| from_fn(|i| (if i < 4 { f[lane][i] } else { g[lane][i - 4] } as f32).to_bits()))
        })
    }

    pub fn selftest_matrices(input: &Input) -> Words {
        let element = |matrix: usize, row: usize, column: usize| {
            let word = input[8 * (matrix % 8) + row][column / 2];
            (word >> (16 * (column % 2))) & 0xffff
        };
        from_fn(|i| {
            let (row, column) = (i % 32 / 4, 2 * (i % 4));
            let plain = |m| element(m, row, column) | element(m, row, column + 1) << 16;
            let turned = |m| element(m, column, row) | element(m, column + 1, row) << 16;
            [
                plain(0) ^ plain(3),
                plain(1),
                plain(2),
                turned(4) ^ turned(6),
                turned(5).wrapping_add(turned(7)),
                plain(2).wrapping_sub(plain(3)),
                turned(1).wrapping_sub(turned(2)),
                plain(7) ^ turned(6).rotate_left(5),
            ]
        })
    }
}
