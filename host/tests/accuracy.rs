//! `sparkinfer accuracy` on the bundled model, and beside what llama.cpp said of the same text.
#![cfg(feature = "bundled-model")]

mod common;

use common::{data, misused, refused, run, run_well};
use serde_json::Value;
use std::path::PathBuf;
use tempfile::TempDir;

/// The limits that the bundled model's CPU engine keeps.
fn gate() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../eval/gates/tiny-cpu.json");
    path.to_owned()
}

/// The first bytes of the held-out text, which are ASCII.
fn excerpt(bytes: usize) -> (TempDir, PathBuf) {
    let text = std::fs::read(data("heldout.txt")).expect("heldout.txt is there");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("excerpt.txt");
    std::fs::write(&path, &text[..bytes]).expect("a file can be written");
    (folder, path)
}

fn base() -> String {
    data("tiny_llama_kl.bin")
        .to_str()
        .expect("the path is UTF-8")
        .to_owned()
}

/// Runs the command with these arguments, and reads what it writes.
fn measured(arguments: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let json = folder.path().join("report.json");
    let plot = folder.path().join("report.svg");
    let [json_path, plot_path] = [&json, &plot].map(|path| path.to_str().expect("the path is UTF-8"));
    let common = [
        "accuracy",
        "--device",
        "cpu",
        "--quiet",
        "--no-hash",
        "--json",
        json_path,
        "--plot",
        plot_path,
    ];
    let said = run_well(&[&common, arguments].concat());
    assert_eq!(said.err, "");
    assert!(
        std::fs::read_to_string(&plot)
            .expect("there is a plot")
            .contains("<svg")
    );
    let report = std::fs::read_to_string(&json).expect("there is a report");
    (said.out, serde_json::from_str(&report).expect("the report is JSON"))
}

#[test]
fn the_gate_passes_beside_llama_cpp() {
    let (out, report) = measured(&[
        "--base",
        &base(),
        "--gate",
        &gate(),
        "--depth",
        "0,20",
        "--tokens-at-depth",
        "8",
    ]);
    let found = &report["found"];
    let kl = |pair: &Value| pair["kl"]["mean"]["value"].as_f64().expect("it is a number");
    assert_eq!(found["ours"][0]["positions"], 28);
    assert_eq!(
        (
            found["ours"][0]["top1"]["value"].as_f64(),
            found["depths"][1]["depth"].as_u64()
        ),
        (Some(1.0), Some(20))
    );
    assert!((1e-6..5e-3).contains(&kl(&found["peer"])), "{out}");
    assert!((1e-6..5e-3).contains(&kl(&found["ours"][0])), "{out}");
    assert!(kl(&found["peer_floor"]) < 1e-8, "{out}");
    assert!(
        out.contains("gate: passed") && report["verdict"]["passed"] == true,
        "{out}"
    );
}

#[test]
fn a_broken_limit_is_told_and_ends_with_1() {
    let (folder, text) = excerpt(1000);
    let strict = folder.path().join("gate.json");
    std::fs::write(&strict, r#"{"kl_mean": 1e-9, "top1": 0.5, "kl_by_peer": 1}"#).expect("a file can be written");
    let [text, strict] = [&text, &strict].map(|path| path.to_str().expect("the path is UTF-8"));
    let arguments = [
        "--file",
        text,
        "--ctx",
        "32",
        "--windows",
        "2",
        "--write",
        "0",
        "--way-depth",
    ];
    let said = run(&[
        &["accuracy", "--device", "cpu", "--quiet", "--no-hash", "--gate", strict],
        &arguments[..],
    ]
    .concat());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(said.err.trim(), "error: the accuracy gate failed: kl_mean, kl_by_peer");
    assert!(
        said.out.contains("NO  kl_mean") && said.out.contains("ok  top1"),
        "{said:?}"
    );
    assert!(said.out.contains("NO  kl_by_peer: not measured"), "{said:?}");
}

#[test]
fn both_ways_and_several_references() {
    let (_folder, text) = excerpt(1000);
    let text = text.to_str().expect("the path is UTF-8");
    let arguments = ["--file", text, "--ctx", "32", "--windows", "1", "--write", "3"];
    let run = |more: &[&str]| measured(&[&arguments, more].concat()).1;
    let (decode, prompt) = (run(&[]), run(&["--way", "prompt", "--reference", "cpu-f32,cpu"]));
    assert_eq!(decode["found"]["ours"][0]["kl"], prompt["found"]["ours"][0]["kl"]);
    assert_eq!(prompt["found"]["ours"][1]["kl"]["max"], 0.0);
    assert_eq!(prompt["found"]["references"][0]["kl"], prompt["found"]["ours"][0]["kl"]);
    assert_eq!(decode["found"]["ways"][1]["comparison"]["kl"]["max"], 0.0);
    assert_eq!(decode["found"]["writing"]["tokens"], 3);
}

#[test]
fn types_of_cache_at_depth() {
    let (_folder, text) = excerpt(1000);
    let text = text.to_str().expect("the path is UTF-8");
    let arguments = [
        "--file",
        text,
        "--ctx",
        "8",
        "--windows",
        "1",
        "--write",
        "0",
        "--way-depth",
        "--depth",
        "150",
    ];
    let (out, report) = measured(&[&arguments[..], &["--depth-kv-types", "f16,q8_0", "--kv-type", "f32"]].concat());
    let rows = report["found"]["depths"].as_array().expect("it is a list");
    let kl: Vec<f64> = rows
        .iter()
        .filter_map(|row| row["comparison"]["kl"]["mean"]["value"].as_f64())
        .collect();
    assert_eq!(kl.len(), 3, "{out}");
    assert!(kl[0] != kl[1] && kl[1] != kl[2] && kl[2] < 5e-3, "{out}");
    assert!(out.contains("depth 150, ours, q8_0 cache: KL mean"), "{out}");
    misused(&["accuracy", "--file", text, "--depth-kv-types", "f16"], "--depth");
}

#[test]
fn a_recorded_reference_gives_the_numbers_of_the_reference() {
    let (folder, text) = excerpt(1000);
    let text = text.to_str().expect("the path is UTF-8");
    let path = folder.path().join("reference");
    let path = path.to_str().expect("the path is UTF-8");
    let asked = ["--file", text, "--ctx", "32", "--windows", "2", "--write", "3"];
    let asked = [&asked[..], &["--depth", "0,90", "--tokens-at-depth", "4"]].concat();
    let record = ["accuracy", "--quiet", "--no-hash", "--record", path];
    let said = run_well(&[&record[..], &asked].concat());
    assert!(said.out.is_empty() && said.err.contains("reference: "), "{said:?}");
    let (out, replayed) = measured(&[&asked[..], &["--reference-file", path]].concat());
    let (_, computed) = measured(&asked);
    for part in ["ours", "depths", "writing", "ways"] {
        assert_eq!(replayed["found"][part], computed["found"][part], "{part}");
    }
    assert!(out.contains("cpu-f32: recorded: CPU"), "{out}");

    let measure = [
        "accuracy",
        "--device",
        "cpu",
        "--quiet",
        "--no-hash",
        "--reference-file",
        path,
    ];
    let elsewhere = ["--file", text, "--ctx", "32", "--windows", "2", "--depth", "80"];
    refused(
        &[&measure[..], &elsewhere].concat(),
        &["reference", "has no predictions", "behind 80"],
    );
    let whole = std::fs::read(path).expect("there is a recording");
    std::fs::write(path, &whole[..whole.len() - 4]).expect("a file can be written");
    refused(&[&measure[..], &asked].concat(), &["reference", "not whole"]);
    misused(
        &["accuracy", "--file", text, "--record", path, "--gate", path],
        "--gate",
    );
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let (folder, text) = excerpt(1000);
    let text = text.to_str().expect("the path is UTF-8");
    misused(&["accuracy"], "--file");
    misused(&["accuracy", "--file", text, "--base", text], "--base");
    misused(&["accuracy", "--file", text, "--peer", "p"], "--model");
    misused(&["accuracy", "--file", text, "--reference", "tpu"], "expected cpu");
    refused(&["accuracy", "--file", "no/such.txt", "--quiet"], &["no/such.txt"]);
    refused(
        &["accuracy", "--base", text, "--quiet"],
        &["excerpt.txt", "kl-divergence-base"],
    );
    refused(
        &["accuracy", "--file", text, "--ctx", "4096", "--quiet"],
        &["less than one window"],
    );
    refused(
        &[
            "accuracy", "--device", "cpu", "--file", text, "--ctx", "16", "--depth", "9999", "--quiet",
        ],
        &["made for 2048"],
    );
    let gate = folder.path().join("gate.json");
    std::fs::write(&gate, "{}").expect("a file can be written");
    let gate = gate.to_str().expect("the path is UTF-8");
    refused(
        &["accuracy", "--file", text, "--gate", gate, "--quiet"],
        &["without a limit"],
    );
}
