//! `sparkinfer perplexity` on the bundled model.
#![cfg(feature = "bundled-model")]

mod common;

use common::{data, misused, refused, run_well};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The first `bytes` bytes of the held-out text, which are ASCII.
fn excerpt(bytes: usize) -> (TempDir, PathBuf) {
    let text = std::fs::read(data("heldout.txt")).expect("heldout.txt is there");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("excerpt.txt");
    std::fs::write(&path, &text[..bytes]).expect("a file can be written");
    (folder, path)
}

fn measure(path: &Path, arguments: &[&str]) -> Value {
    let path = path.to_str().expect("the path is UTF-8");
    let said = run_well(&[&["perplexity", "--json", "--file", path], arguments].concat());
    serde_json::from_str(&said.out).expect("the output is JSON")
}

#[test]
fn both_arithmetics_agree_and_count_what_they_score() {
    let (_folder, path) = excerpt(4000);
    let practical = measure(&path, &["--ctx", "256"]);
    let exact = measure(&path, &["--ctx", "256", "--f32"]);
    let value = |answer: &Value| answer["perplexity"].as_f64().expect("it is a number");
    assert!(
        (value(&practical) / value(&exact) - 1.0).abs() < 0.02,
        "{practical} {exact}"
    );
    for answer in [&practical, &exact] {
        let windows = answer["windows"].as_u64().expect("it is a count");
        assert!(
            windows >= 2 && answer["scored_tokens"].as_u64() == Some(windows * 127),
            "{answer}"
        );
        assert!((5.0..60.0).contains(&value(answer)), "{answer}");
    }
}

#[test]
fn text_is_two_lines() {
    let (_folder, path) = excerpt(2000);
    let path = path.to_str().expect("the path is UTF-8");
    let said = run_well(&["perplexity", "--file", path, "--ctx", "64"]);
    assert!(
        said.out.starts_with("perplexity ") && said.out.lines().count() == 2,
        "{said:?}"
    );
    assert_eq!(said.err, "");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let (_folder, path) = excerpt(20);
    let path = path.to_str().expect("the path is UTF-8");
    refused(&["perplexity", "--file", path], &["512"]);
    refused(&["perplexity", "--file", "no/such.txt"], &["no/such.txt"]);
    misused(&["perplexity"], "--file");
    misused(&["perplexity", "--file", path, "--ctx", "2"], "--ctx");
}
