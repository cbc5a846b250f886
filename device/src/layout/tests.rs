//! No layout loses a bit, and bad shapes are refused in words.

use super::*;
use proptest::prelude::*;

fn round_trip<L: WeightLayout>(rows: usize, blocks: usize, seed: u64) {
    let shape = Shape {
        rows,
        columns: blocks * L::BLOCK_COLUMNS,
    };
    let file = crate::testing::bytes(seed, shape.file_bytes::<L>());
    let mut packed = vec![0xa5; shape.packed_bytes::<L>()];
    let mut back = vec![0x5a; file.len()];
    pack::<L>(shape, &file, &mut packed).unwrap();
    unpack::<L>(shape, &packed, &mut back).unwrap();
    assert!(file == back, "{} of {rows} rows x {blocks} blocks changed", L::NAME);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn packing_is_a_bijection(rows in 1usize..40, blocks in 1usize..6, seed: u64) {
        round_trip::<Q4KTile>(rows, blocks, seed);
        round_trip::<Q5KTile>(rows, blocks, seed);
        round_trip::<Q6KTile>(rows, blocks, seed);
        round_trip::<Q4KRow>(rows, blocks, seed);
        round_trip::<Q6KRow>(rows, blocks, seed);
        round_trip::<Q4_0Tile>(rows, blocks, seed);
        round_trip::<Q4_1Tile>(rows, blocks, seed);
        round_trip::<Q5_0Tile>(rows, blocks, seed);
        round_trip::<Q5_1Tile>(rows, blocks, seed);
        round_trip::<Q8_0Tile>(rows, blocks, seed);
        round_trip::<Q2KTile>(rows, blocks, seed);
        round_trip::<Q3KTile>(rows, blocks, seed);
        round_trip::<Iq4NlTile>(rows, blocks, seed);
        round_trip::<Iq4XsTile>(rows, blocks, seed);
        round_trip::<Mxfp4Tile>(rows, blocks, seed);
        round_trip::<Nvfp4Tile>(rows, blocks, seed);
    }
}

/// Every bit of the packed form comes from the file: flipping one file bit flips exactly one packed bit.
fn one_bit_for_one<L: WeightLayout>() {
    let shape = Shape {
        rows: L::GROUP_ROWS,
        columns: 2 * TILE_COLUMNS,
    };
    let mut file = crate::testing::bytes(7, shape.file_bytes::<L>());
    let mut base = vec![0; shape.packed_bytes::<L>()];
    pack::<L>(shape, &file, &mut base).unwrap();
    let mut other = base.clone();
    for bit in (0..file.len() * 8).step_by(61) {
        file[bit / 8] ^= 1 << (bit % 8);
        pack::<L>(shape, &file, &mut other).unwrap();
        let changed: u32 = base.iter().zip(&other).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(changed, 1, "{}: bit {bit}", L::NAME);
        file[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_bit_has_one_place() {
    one_bit_for_one::<Q4KTile>();
    one_bit_for_one::<Q5KTile>();
    one_bit_for_one::<Q6KTile>();
    one_bit_for_one::<Q4KRow>();
    one_bit_for_one::<Q6KRow>();
    one_bit_for_one::<Q4_0Tile>();
    one_bit_for_one::<Q4_1Tile>();
    one_bit_for_one::<Q5_0Tile>();
    one_bit_for_one::<Q5_1Tile>();
    one_bit_for_one::<Q8_0Tile>();
    one_bit_for_one::<Q2KTile>();
    one_bit_for_one::<Q3KTile>();
    one_bit_for_one::<Iq4NlTile>();
    one_bit_for_one::<Iq4XsTile>();
    one_bit_for_one::<Mxfp4Tile>();
    one_bit_for_one::<Nvfp4Tile>();
}

#[test]
fn rows_past_the_end_are_zero() {
    let shape = Shape { rows: 3, columns: 256 };
    let file = crate::testing::bytes(1, shape.file_bytes::<Q4KTile>());
    let mut packed = vec![0xff; shape.packed_bytes::<Q4KTile>()];
    pack::<Q4KTile>(shape, &file, &mut packed).unwrap();
    let mut block = [1u8; 144];
    Q4KTile::get_block(&packed, 1, 15, 0, &mut block);
    assert_eq!(block, [0; 144]);
}

#[test]
fn bad_shapes_are_named() {
    assert!(pack::<Q8_0Tile>(Shape { rows: 16, columns: 96 }, &[0; 16 * 3 * 34], &mut [0; 4352]).is_ok());
    let odd = pack::<Q4KTile>(Shape { rows: 16, columns: 100 }, &[], &mut []).unwrap_err();
    assert_eq!(
        odd.to_string(),
        "layout Q4_K tile: rows of 100 values cannot be packed, the length must be a positive multiple of 256"
    );
    let short = pack::<Q6KRow>(Shape { rows: 8, columns: 256 }, &[0; 10], &mut [0; 1680]).unwrap_err();
    assert_eq!(
        short.to_string(),
        "layout Q6_K row: the file buffer has 10 bytes, 1680 are needed"
    );
}
