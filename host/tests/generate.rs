//! `sparkinfer generate`, flag by flag, on the bundled model.
#![cfg(feature = "bundled-model")]

mod common;

use common::{Said, data, misused, refused, run, run_well, run_with_input, sparkinfer, tiny_model};
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Stdio};

/// A prompt that the tiny model goes on from with a wide gap between its first two choices.
const POINT: &str = "#[derive(Debug)]\nstruct Point {";

fn golden() -> Vec<Value> {
    let text = std::fs::read_to_string(data("golden.json")).expect("golden.json is there");
    let golden: Value = serde_json::from_str(&text).expect("golden.json is JSON");
    golden["prompts"].as_array().expect("it has prompts").clone()
}

/// Runs `generate --json` with more arguments and takes its object.
fn answer(arguments: &[&str]) -> Value {
    let said = run_well(&[&["generate", "--json", "--quiet"], arguments].concat());
    serde_json::from_str(&said.out).expect("the output is JSON")
}

fn text(arguments: &[&str]) -> String {
    answer(arguments)["text"].as_str().expect("there is a text").to_owned()
}

#[test]
fn the_golden_prompts_give_the_golden_tokens() {
    for golden in golden() {
        let prompt = golden["prompt"].as_str().expect("there is a prompt");
        let answer = answer(&["--prompt", prompt, "-n", "32", "--ignore-eos"]);
        assert_eq!(answer["prompt_ids"], golden["prompt_ids"], "{prompt}");
        assert_eq!(answer["output_ids"], golden["greedy_ids"], "{prompt}");
    }
}

#[test]
fn without_arguments_it_goes_on_from_the_sample() {
    let said = run_well(&["generate"]);
    let golden = golden();
    assert!(
        said.out
            .starts_with(golden[0]["greedy_text"].as_str().expect("there is a text")),
        "{said:?}"
    );
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    for part in [
        "tiny-qwen3moe",
        "prompt 14 tokens",
        "first token",
        "generated 128 tokens",
        "tok/s",
        "memory",
    ] {
        assert!(said.err.contains(part), "{part:?} is missing in {}", said.err);
    }
}

#[test]
fn streamed_text_is_the_text_of_the_json() {
    let streamed = run_well(&["generate", "--prompt", POINT, "-n", "20"]).out;
    assert_eq!(streamed, text(&["--prompt", POINT, "-n", "20"]));
}

#[test]
fn texts_at_once_are_those_of_their_seeds() {
    let sampled = [
        "--prompt",
        POINT,
        "-n",
        "8",
        "--temp",
        "1.5",
        "--ignore-eos",
        "--device",
        "cpu",
    ];
    let all = answer(&[&sampled[..], &["--parallel", "3", "--seed", "7"]].concat());
    for (one, seed) in all["texts"]
        .as_array()
        .expect("there are texts")
        .iter()
        .zip(["7", "8", "9"])
    {
        let alone = answer(&[&sampled[..], &["--seed", seed]].concat());
        assert_eq!(one["output_ids"], alone["output_ids"], "seed {seed}");
    }
    assert_eq!(all["timings"]["generated_tokens"], 24);
    let printed = run_well(&["generate", "--prompt", POINT, "-n", "4", "--parallel", "2"]);
    let texts: Vec<&str> = printed.out.split("--- seed ").skip(1).map(|text| &text[2..]).collect();
    assert_eq!((texts.len(), texts[0].trim()), (2, texts[1].trim()));
    assert!(printed.err.contains("generated 8 tokens"), "{}", printed.err);
}

#[test]
fn json_has_ids_text_and_timings() {
    let answer = answer(&["-n", "4"]);
    assert_eq!(answer["output_ids"].as_array().map(Vec::len), Some(4));
    assert_eq!(answer["finish"], "length");
    for field in [
        "load_seconds",
        "prompt_seconds",
        "decode_seconds",
        "decode_tokens_per_second",
    ] {
        assert!(
            answer["timings"][field].as_f64().is_some_and(|value| value >= 0.0),
            "{field}: {answer}"
        );
    }
    assert_eq!(answer["timings"]["prompt_tokens"], 14);
    assert_eq!(answer["timings"]["generated_tokens"], 4);
}

#[test]
fn numbers_of_tokens_in_place_of_text() {
    let numbers = |ids: &Value| -> String {
        let ids = ids.as_array().expect("ids are a list").iter().map(Value::to_string);
        ids.collect::<Vec<_>>().join(" ") + "\n"
    };
    let said = run_well(&["generate", "-n", "5", "--show-tokens", "--quiet"]);
    let alone = answer(&["-n", "5"]);
    assert_eq!(said.out, numbers(&alone["prompt_ids"]) + &numbers(&alone["output_ids"]));
    assert_eq!(said.err, "");
    let sampled = ["-n", "5", "--temp", "1.5", "--parallel", "2", "--device", "cpu"];
    let said = run_well(&[&["generate", "--show-tokens", "--quiet"], &sampled[..]].concat());
    let texts = &answer(&sampled)["texts"];
    let lines = numbers(&alone["prompt_ids"]) + &numbers(&texts[0]["output_ids"]) + &numbers(&texts[1]["output_ids"]);
    assert_eq!(said.out, lines);
    let none = run_well(&["generate", "-n", "0", "--show-tokens", "--quiet"]);
    assert_eq!(none.out, numbers(&alone["prompt_ids"]) + "\n");
    misused(&["generate", "--show-tokens", "--json"], "--json");
}

#[test]
fn quiet_says_nothing_beside_the_text() {
    assert_eq!(run_well(&["generate", "-n", "2", "--quiet"]).err, "");
}

#[test]
fn model_is_a_file() {
    let path = tiny_model();
    let path = path.to_str().expect("the path is UTF-8");
    assert_eq!(text(&["--model", path, "-n", "8"]), text(&["-n", "8"]));
    refused(&["generate", "--model", "no/such.gguf"], &["no/such.gguf"]);
}

#[test]
fn prompts_come_from_text_file_and_pipe() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("prompt.txt");
    std::fs::write(&file, format!("{POINT}\n")).expect("a file can be written");
    let file = file.to_str().expect("the path is UTF-8");
    let expected = text(&["--prompt", POINT, "-n", "8"]);
    assert_eq!(text(&["--prompt-file", file, "-n", "8"]), expected);
    for arguments in [&["-"][..], &["--prompt-file", "-"], &[]] {
        let said = run_with_input(
            &[&["generate", "--quiet", "-n", "8"], arguments].concat(),
            POINT.as_bytes(),
        );
        assert_eq!(
            (said.code, said.out.as_str()),
            (Some(0), expected.as_str()),
            "{arguments:?}"
        );
    }
    refused(&["generate", "--prompt-file", "no/such.txt"], &["no/such.txt"]);
    misused(
        &["generate", "--prompt", "a", "--prompt-file", "b"],
        "cannot be used with",
    );
}

#[test]
fn prompts_that_are_empty_or_no_text_are_refused() {
    refused(&["generate", "--prompt", ""], &["the prompt is empty"]);
    let said = run_with_input(&["generate"], b"ab\xff");
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    assert_eq!(said.err, "error: standard input is not UTF-8 from byte 2 on\n");
}

#[test]
fn the_number_of_tokens_is_kept() {
    assert_eq!(answer(&["-n", "3"])["output_ids"].as_array().map(Vec::len), Some(3));
    let none = answer(&["-n", "0"]);
    assert_eq!((&none["text"], &none["finish"]), (&"".into(), &"length".into()));
}

#[test]
fn the_context_bounds_prompt_and_text() {
    let full = answer(&["--prompt", POINT, "--ctx", "16", "--ignore-eos"]);
    let prompt = full["prompt_ids"].as_array().map_or(0, Vec::len);
    assert_eq!(full["finish"], "context");
    assert_eq!(full["output_ids"].as_array().map(Vec::len), Some(16 - prompt + 1));
    refused(&["generate", "--ctx", "13"], &["14 tokens", "context of 13", "--ctx"]);
    refused(&["generate", "--ctx", "4096"], &["4096", "2048"]);
    let long = "word ".repeat(3000);
    refused(
        &["generate", "--prompt", &long],
        &["tokens, more than the context of 2048"],
    );
    misused(&["generate", "--ctx", "0"], "--ctx");
}

#[test]
fn chance_follows_the_seed() {
    let sampled = |seed: &str| {
        text(&[
            "--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed", seed, "-n", "16",
        ])
    };
    assert_eq!(sampled("1"), sampled("1"));
    assert_ne!(sampled("1"), sampled("2"));
}

#[test]
fn narrow_sampling_is_greedy() {
    let greedy = text(&["-n", "16"]);
    for narrow in [["--top-k", "1"], ["--top-p", "0"], ["--min-p", "1"]] {
        assert_eq!(
            text(&[&["--temp", "2", "-n", "16"], &narrow[..]].concat()),
            greedy,
            "{narrow:?}"
        );
    }
}

#[test]
fn settings_outside_their_limits_are_usage_errors() {
    misused(&["generate", "--temp", "nan"], "temperature");
    misused(
        &["generate", "--temp", "-1"],
        "temperature is -1, but must be 0 or more",
    );
    misused(&["generate", "--stop", ""], "--stop <TEXT>");
    misused(&["generate", "--top-p", "1.5"], "top-p");
    misused(&["generate", "--min-p", "-1"], "min-p");
    misused(&["generate", "--repeat-penalty", "0"], "repeat-penalty");
}

#[test]
fn the_repeat_penalty_breaks_a_loop() {
    let plain = text(&["-n", "48"]);
    let penalised = text(&["-n", "48", "--repeat-penalty", "1.5"]);
    let loops = |text: &str| text.matches("in love with her").count();
    assert!(loops(&plain) >= 3, "{plain}");
    assert!(loops(&penalised) <= 1, "{penalised}");
    assert_eq!(
        text(&["-n", "48", "--repeat-penalty", "1.5", "--repeat-last-n", "0"]),
        plain
    );
}

#[test]
fn stop_strings_end_the_text_before_them() {
    let plain = text(&["-n", "48"]);
    for stop in ["love", "ve wi", " her. She"] {
        let stopped = answer(&["-n", "48", "--stop", "never said", "--stop", stop]);
        assert_eq!(stopped["text"].as_str(), plain.split(stop).next(), "{stop}");
        assert_eq!(stopped["finish"], "stop");
    }
    assert_eq!(text(&["-n", "48", "--stop", "never said"]), plain);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    assert_eq!(
        text(&["-n", "32", "--threads", "1"]),
        text(&["-n", "32", "--threads", "3"])
    );
    misused(&["generate", "--threads", "0"], "--threads");
}

#[test]
fn chat_uses_the_template_and_ends_by_itself() {
    let chat = answer(&["--chat", "--prompt", "What is Rust?"]);
    assert_eq!(chat["prompt_ids"], golden()[3]["prompt_ids"]);
    assert_eq!(chat["finish"], "end-of-text");
    let with_system = answer(&[
        "--chat",
        "--system",
        "Be brief.",
        "--prompt",
        "What is Rust?",
        "-n",
        "1",
    ]);
    let length = |answer: &Value| answer["prompt_ids"].as_array().map_or(0, Vec::len);
    assert!(length(&with_system) > length(&chat));
    misused(&["generate", "--system", "x"], "--chat");
}

#[test]
fn ignore_eos_goes_on() {
    let arguments = ["--chat", "--prompt", "What is Rust?", "-n", "200"];
    let stopped = answer(&arguments);
    let ignored = answer(&[&arguments[..], &["--ignore-eos"]].concat());
    assert_eq!(
        (&stopped["finish"], &ignored["finish"]),
        (&"end-of-text".into(), &"length".into())
    );
    assert_eq!(ignored["output_ids"].as_array().map(Vec::len), Some(200));
}

#[test]
fn devices() {
    assert_eq!(
        text(&["--device", "cpu", "-n", "8"]),
        text(&["--device", "auto", "-n", "8"])
    );
    refused(
        &["generate", "--device", "cuda:99"],
        &["cuda:99 cannot be used", "ask for cpu"],
    );
    misused(&["generate", "--device", "abacus"], "abacus");
}

#[test]
fn types_of_the_cache() {
    let plain = text(&["--prompt", POINT, "-n", "16"]);
    for kv_type in ["f32", "f16", "bf16", "q8_0"] {
        let arguments = ["--prompt", POINT, "-n", "16", "--kv-type", kv_type];
        assert_eq!(text(&arguments), plain, "{kv_type}");
    }
    misused(&["generate", "--kv-type", "q4_0"], "expected f16, bf16, q8_0");
}

/// A run that goes on for long enough to be disturbed.
fn long_run() -> Command {
    sparkinfer(&["generate", "-n", "100000", "--ignore-eos"])
}

#[test]
fn an_interrupt_ends_in_order() {
    let mut child = long_run().spawn().expect("the binary starts");
    let mut first = [0; 8];
    child
        .stdout
        .as_mut()
        .expect("stdout is piped")
        .read_exact(&mut first)
        .expect("text comes");
    interrupt(&child);
    let said = Said::from(child.wait_with_output().expect("the binary ends"));
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.err.lines().count() == 1 && said.err.contains("tok/s"), "{said:?}");
}

#[test]
fn an_interrupt_ends_the_wait_for_a_prompt() {
    let mut child = sparkinfer(&["generate", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    std::thread::sleep(std::time::Duration::from_millis(500));
    interrupt(&child);
    // Its input stays open: only the signal can have ended it.
    let ended = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        child.try_wait().expect("the child can be asked")
    });
    child.kill().expect("the child can be ended");
    assert!(ended.is_some_and(|status| !status.success()));
}

fn interrupt(child: &std::process::Child) {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill starts").success());
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let mut child = long_run().stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdout = child.stdout.take().expect("stdout is piped");
    stdout.read_exact(&mut [0; 8]).expect("text comes");
    drop(stdout);
    let said = Said::from(child.wait_with_output().expect("the binary ends"));
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
}

#[test]
fn verbosity_goes_to_standard_error() {
    assert_eq!(
        run(&["generate", "-n", "8", "-vv"]).out,
        run(&["generate", "-n", "8"]).out
    );
}
