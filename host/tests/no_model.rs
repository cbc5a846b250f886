//! A binary without the bundled model. Runs with `cargo test -p sparkinfer --no-default-features --test no_model`.
#![cfg(not(feature = "bundled-model"))]

mod common;

use common::{refused, run_well, tiny_model};

#[test]
fn a_model_has_to_be_given() {
    refused(&["generate"], &["no model", "--model"]);
}

#[test]
fn with_a_model_it_runs() {
    let path = tiny_model();
    let path = path.to_str().expect("the path is UTF-8");
    assert!(!run_well(&["generate", "--model", path, "-n", "2"]).out.is_empty());
}
