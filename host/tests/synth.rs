//! `synth`: files that the other commands take.

mod common;

use common::{misused, refused, run, run_well, tiny_model};

/// A path inside a folder, as text.
fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().expect("the path is UTF-8").to_owned()
}

#[test]
fn a_small_model_can_be_made_and_inspected() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = path(&folder, "m.gguf");
    let said = run_well(&["synth", "--arch", "small-qwen3moe", "--layers", "1", "--out", &file]);
    assert_eq!(said.out, "");
    let bytes = std::fs::metadata(&file).expect("the file is there").len();
    assert!(said.err.contains(&format!("m.gguf: {bytes} bytes in ")), "{said:?}");
    let inspected = run_well(&["inspect", &file]);
    assert!(inspected.out.contains("qwen3moe.block_count = 1"), "{inspected:?}");
}

#[test]
fn a_vocabulary_can_be_taken_from_another_file() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (file, tiny) = (path(&folder, "m.gguf"), tiny_model());
    let vocab = tiny.to_str().expect("the path is UTF-8");
    run_well(&[
        "synth",
        "--arch",
        "small-qwen3",
        "--vocab",
        vocab,
        "--quant",
        "Q8_0",
        "--out",
        &file,
    ]);
    assert!(run_well(&["inspect", &file]).out.contains("tokenizer.ggml.merges"));
}

#[test]
fn what_cannot_be_made_is_refused() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = path(&folder, "m.gguf");
    std::fs::copy(tiny_model(), &file).expect("the model can be copied");
    let here = path(&folder, "./m.gguf");
    refused(
        &["synth", "--arch", "small-qwen3", "--vocab", &here, "--out", &file],
        &["m.gguf", "vocabulary", "--out"],
    );
    run_well(&["inspect", &file]);
    std::fs::remove_file(&file).expect("the copy can be removed");
    refused(
        &["synth", "--arch", "gpt-5", "--out", &file],
        &["'gpt-5'", "qwen3-30b-a3b"],
    );
    refused(
        &["synth", "--arch", "small-qwen3", "--quant", "q1", "--out", &file],
        &["'q1'", "q4_k_m"],
    );
    refused(
        &["synth", "--arch", "small-qwen3", "--layers", "0", "--out", &file],
        &["0 layers"],
    );
    refused(
        &["synth", "--arch", "small-qwen3", "--vocab", "no/such", "--out", &file],
        &["no/such: no such file"],
    );
    refused(
        &["synth", "--arch", "small-qwen3", "--out", "no/such/folder/m.gguf"],
        &["cannot be written"],
    );
    assert!(!folder.path().join("m.gguf").exists());
    misused(&["synth", "--arch", "small-qwen3"], "--out");
}

#[test]
fn the_seed_decides() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let make = |name: &str, seed: &str| {
        let file = path(&folder, name);
        assert_eq!(
            run(&["synth", "--arch", "small-llama", "--seed", seed, "--out", &file]).code,
            Some(0)
        );
        std::fs::read(file).expect("the file is there")
    };
    assert!(make("a", "1") == make("b", "1"));
    assert!(make("a", "1") != make("b", "2"));
}
