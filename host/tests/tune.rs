//! `sparkinfer tune`, and launch shapes that are given.

mod common;

use common::{misused, refused, run_well};

#[test]
fn what_cannot_be_tuned_is_refused() {
    refused(&["tune", "--device", "cpu"], &["the CPU has no launches to tune"]);
    refused(&["tune", "--device", "cuda:99"], &["nothing can be tuned here"]);
    refused(
        &["tune", "--depth", "1000000"],
        &["no depth leaves room for 32 tokens", "2048"],
    );
    refused(&["tune", "--model", "no/such/file.gguf"], &["no/such/file.gguf"]);
    misused(&["tune", "--budget-s", "0"], "--budget-s");
    misused(&["tune", "-n", "1"], "--tokens");
}

#[test]
fn a_tuning_is_a_file() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.to_str().expect("the path is UTF-8").to_owned()
    };
    let sound = path("sound.json", r#"{"tuning": {"attention_splits": 16}}"#);
    let broken = path("broken.json", r#"{"tuning": {"attention_splits": 65}}"#);
    let line = ["generate", "--device", "cpu", "-n", "3", "--quiet"];
    let with = |more: &[&'static str], file: &str| {
        let words = line.iter().chain(more).map(|word| (*word).to_owned());
        words
            .chain([file.to_owned()])
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
    };
    let run = |words: Vec<String>| run_well(&words.iter().map(String::as_str).collect::<Vec<_>>()).out;
    assert_eq!(run(with(&["--tuning"], &sound)), run(with(&["--no-tune"], "")));
    for (file, parts) in [
        (
            broken.as_str(),
            ["broken.json", "attention_splits is 65, 0 to 64 are allowed"],
        ),
        ("none.json", ["none.json", "No such file"]),
    ] {
        let words = with(&["--tuning"], file);
        refused(&words.iter().map(String::as_str).collect::<Vec<_>>(), &parts);
    }
    misused(&["generate", "--no-tune", "--tuning", &sound], "--no-tune");
}
