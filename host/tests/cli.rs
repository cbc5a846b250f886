//! What all commands have in common, and `inspect`.

mod common;

use common::{misused, refused, run, run_well, sparkinfer, tiny_model};
use serde_json::Value;
use std::process::Stdio;

fn tiny() -> String {
    tiny_model().to_str().expect("the path is UTF-8").to_owned()
}

#[test]
fn help_and_version_are_answers() {
    assert!(run_well(&["--help"]).out.contains("inspect"));
    assert!(run_well(&["--version"]).out.starts_with("sparkinfer "));
}

#[test]
fn wrong_arguments_are_usage_errors() {
    misused(&[], "Usage:");
    misused(&["dance"], "unrecognized subcommand");
    misused(&["inspect"], "<FILE>");
    misused(&["inspect", "a", "--yaml"], "--yaml");
}

#[test]
fn files_that_are_no_models_are_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file can be written");
        path.to_str().expect("the path is UTF-8").to_owned()
    };
    refused(&["inspect", "no/such/file.gguf"], &["no/such/file.gguf"]);
    refused(&["inspect", &path("empty.gguf", b"")], &["empty.gguf"]);
    refused(&["inspect", &path("text.gguf", b"once upon a time")], &["text.gguf"]);
    refused(&["inspect", &path("short.gguf", b"GGUF\x03\0\0\0")], &["short.gguf"]);
    refused(&["inspect", folder.path().to_str().expect("the path is UTF-8")], &[]);
}

#[test]
fn inspect_prints_text() {
    let said = run_well(&["inspect", &tiny()]);
    for part in [
        "16272640 parameters",
        "general.architecture = \"qwen3moe\"",
        "token_embd.weight",
        "Q6_K",
    ] {
        assert!(said.out.contains(part), "{part:?} is missing in {}", said.out);
    }
    assert_eq!(said.err, "");
}

#[test]
fn inspect_prints_json() {
    let said = run_well(&["inspect", &tiny(), "--json"]);
    let report: Value = serde_json::from_str(&said.out).expect("the output is JSON");
    assert_eq!(report["metadata"]["qwen3moe.expert_count"], 16);
    assert_eq!(report["file_bytes"], 10_197_248);
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut child = sparkinfer(&["inspect", &tiny()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the binary ends");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn verbosity_changes_no_answer() {
    assert_eq!(run(&["inspect", &tiny()]).out, run(&["-vv", "inspect", &tiny()]).out);
    assert_eq!(run(&["inspect", &tiny()]).out, run(&["inspect", "-v", &tiny()]).out);
}
