//! `tokenize`, as a user runs it.

mod common;

use common::{data, misused, refused, run_well, run_with_input};
use serde_json::Value;

#[test]
fn ids_of_prompts_are_llama_cpps() {
    let golden = std::fs::read_to_string(data("golden.json")).expect("the file is there");
    let golden: Value = serde_json::from_str(&golden).expect("the file is JSON");
    let prompts = golden["prompts"].as_array().expect("the prompts are a list");
    assert!(!prompts.is_empty());
    for prompt in prompts {
        let text = prompt["prompt"].as_str().expect("a prompt is a text");
        let ids: Vec<String> = prompt["prompt_ids"]
            .as_array()
            .expect("ids are a list")
            .iter()
            .map(Value::to_string)
            .collect();
        let said = run_well(&["tokenize", "--ids", text]);
        assert_eq!(said.out, format!("{}\n", ids.join(" ")));
        assert_eq!(said.err, "");
    }
}

#[test]
fn tokens_are_listed_with_their_texts() {
    let said = run_well(&["tokenize", "Emma\n<|im_end|>"]);
    let last: Vec<&str> = said.out.lines().rev().take(2).map(str::trim).collect();
    assert!(last[1].ends_with("'\\n'"), "{}", said.out);
    assert_eq!(last[0], "4095 '<|im_end|>'");
}

#[test]
fn special_tokens_can_be_ordinary_text() {
    assert_eq!(run_well(&["tokenize", "--ids", "<|im_end|>"]).out, "4095\n");
    let said = run_well(&["tokenize", "--ids", "--no-special", "<|im_end|>"]);
    assert!(said.out.split_whitespace().count() > 1, "{}", said.out);
    assert!(!said.out.contains("4095"), "{}", said.out);
}

#[test]
fn standard_input_is_read_to_its_end() {
    let piped = run_with_input(&["tokenize", "--ids", "-"], b"one\ntwo\n").out;
    assert_eq!(piped, run_well(&["tokenize", "--ids", "one\ntwo"]).out);
}

#[test]
fn empty_texts_and_texts_like_flags() {
    assert_eq!(run_well(&["tokenize", "--ids", ""]).out, "\n");
    assert!(run_well(&["tokenize", "--ids", "--", "-x"]).out.len() > 1);
}

#[test]
fn wrong_use_is_refused() {
    misused(&["tokenize"], "<TEXT>");
    refused(&["tokenize", "--model", "no/such.gguf", "x"], &["no/such.gguf"]);
}
