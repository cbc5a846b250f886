//! The attention kernels at depths where something changes, and the shapes they refuse.

use super::AttentionPlan;
use crate::decode::kv::KvFormat;
use crate::decode::rope::Pairing;
use crate::testing::Emulated;
use crate::testing::cases::attention::{Setting, fast, slow};

fn run(setting: Setting, splits: u32, warps: u32, seed: u64) {
    if let Err(error) = fast(&mut Emulated::new(seed), setting, splits, warps, seed) {
        panic!("position {}: {error}", setting.position);
    }
}

#[test]
fn one_split_around_the_edges_of_chunks_and_pages() {
    for position in [0, 1, 31, 32, 33, 63, 64, 65, 100] {
        run(Setting::new(8, 1, 128, position), 1, 4, u64::from(position));
    }
}

#[test]
fn several_splits_around_page_edges() {
    for position in [127, 128, 191, 300] {
        run(Setting::new(16, 2, 128, position), 5, 2, u64::from(position));
    }
}

#[test]
fn the_bundled_models_shape() {
    run(Setting::new(4, 2, 128, 77), 3, 4, 5);
}

#[test]
fn windows_that_begin_inside_a_chunk() {
    for position in [5, 40, 99, 200] {
        run(
            Setting {
                window: 40,
                ..Setting::new(8, 1, 64, position)
            },
            3,
            2,
            9,
        );
    }
}

#[test]
fn the_general_kernel_takes_what_the_fast_ones_refuse() {
    let odd = Setting {
        window: 20,
        softcap: 5.0,
        ..Setting::new(34, 2, 80, 60)
    };
    assert!(AttentionPlan::new(odd.shape(), odd.format, 80, 132).is_err());
    slow(&mut Emulated::new(1), odd, 1).unwrap();
}

#[test]
fn every_format_around_the_edges_of_chunks() {
    for format in KvFormat::ALL {
        for position in [0, 1, 15, 16, 17, 95] {
            let setting = Setting {
                format,
                ..Setting::new(8, 1, 128, position)
            };
            run(setting, 2, 2, u64::from(position));
        }
    }
}

#[test]
fn shapes_that_are_refused_say_why() {
    let refused = |s: Setting| {
        AttentionPlan::new(s.shape(), s.format, s.head_dim, 132)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(Setting::new(8, 1, 80, 0)).contains("heads of 80 dims"));
    assert!(refused(Setting::new(34, 2, 128, 0)).contains("34 query heads on 2 key heads"));
    assert!(refused(Setting::new(16, 1, 256, 0)).contains("1 to 8"));
    assert!(
        refused(Setting {
            softcap: 30.0,
            ..Setting::new(8, 1, 128, 0)
        })
        .contains("score cap 30")
    );
    let odd = Setting {
        rotated: 31,
        pairing: Pairing::Neighbours,
        ..Setting::new(8, 1, 128, 0)
    };
    assert!(refused(odd).contains("31 of 128"));
}
