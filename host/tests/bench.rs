//! `bench` and `trace-diff` on the bundled model.

mod common;

use common::{misused, refused, run, run_well};

#[test]
fn bench_measures_prints_and_writes() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = |name: &str| folder.path().join(name).to_str().expect("the path is UTF-8").to_owned();
    let (json, plot) = (path("out.json"), path("out.svg"));
    let words = "bench --device cpu --threads 1 --depth 0,8 -n 2 --prompt-sizes 8 --sequences 1,2 --reps 1 --quiet";
    let mut words: Vec<&str> = words.split(' ').collect();
    let text = common::data("heldout.txt");
    let text = text.to_str().expect("the path is UTF-8");
    words.extend(["--real-prompt", text, "--json", &json, "--plot", &plot]);
    let said = run_well(&words);
    for part in [
        "memory read at",
        "depth",
        "of limit",
        "prompt, tokens a second:",
        "sequences",
    ] {
        assert!(said.out.contains(part), "{part} is missing in {}", said.out);
    }
    assert_eq!(said.err, "");
    let read = |path| std::fs::read_to_string(path).expect("the file was written");
    let report: serde_json::Value = serde_json::from_str(&read(json)).expect("it is JSON");
    assert_eq!(report["decode"][1]["depth"], 8);
    assert_eq!(
        (&report["decode"][3]["depth"], &report["decode"][3]["prompt"]),
        (&8.into(), &"real".into())
    );
    assert_eq!(report["prompts"][1]["description"], "the text of heldout.txt");
    assert_eq!(report["model"]["sha256"][0].as_str().map(str::len), Some(64));
    assert_eq!(report["together"][1]["sequences"], 2);
    assert!(report["decode"][0]["limit"]["streaming_ms"].as_f64() > Some(0.0));
    assert!(read(plot).starts_with("<svg"));
}

#[test]
fn bench_refuses_what_cannot_be_measured() {
    misused(&["bench", "--reps", "0"], "--reps");
    misused(&["bench", "--peer", "llama-bench"], "--model");
    refused(
        &["bench", "--device", "cpu", "--depth", "9999999"],
        &["the model is made for"],
    );
    let peer = [
        "--device",
        "cpu",
        "--reps",
        "1",
        "--prompt-sizes",
        "4",
        "--depth",
        "0",
        "-n",
        "1",
        "--quiet",
    ];
    let model = common::tiny_model();
    let model = model.to_str().expect("the path is UTF-8");
    refused(
        &[&["bench", "--model", model, "--peer", "no/such/llama-bench"], &peer[..]].concat(),
        &["no/such/llama-bench"],
    );
}

#[test]
fn trace_diff_compares_two_engines() {
    let said = run_well(&[
        "trace-diff",
        "--a",
        "cpu-f32",
        "--b",
        "cpu-f32",
        "-n",
        "2",
        "--threads",
        "1",
    ]);
    assert!(
        said.out.contains("no difference beyond 0.005 in 2 tokens"),
        "{}",
        said.out
    );
    let words = [
        "trace-diff",
        "--b",
        "cpu",
        "-n",
        "1",
        "--tolerance",
        "0",
        "--threads",
        "1",
    ];
    let said = run(&words);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(said.err, "error: cpu-f32 and cpu differ at layer 0 attention\n");
    assert!(
        said.out
            .contains("first difference beyond 0: layer 0 attention, token 0"),
        "{}",
        said.out
    );
    misused(&["trace-diff", "--tolerance", "nan"], "expected a number, 0 or above");
    misused(&["trace-diff", "--a", "gpu"], "expected cpu, cuda, cuda:N or emulator");
}

#[test]
fn repeat_compares_runs_and_writes_their_tokens() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = |name: &str| folder.path().join(name).to_str().expect("the path is UTF-8").to_owned();
    let (json, text) = (path("out.json"), path("p.txt"));
    std::fs::write(&text, "The river").expect("a file can be written");
    let words = "repeat --device cpu --threads 1 --depth 9,0 -n 5 --runs 2 --refill --no-hash --quiet --real-prompt";
    let mut words: Vec<&str> = words.split(' ').collect();
    words.extend([&text, "--json", &json]);
    let said = run_well(&words);
    assert_eq!(said.err, "");
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(
        lines[1],
        "2 greedy runs of 5 tokens behind the text of p.txt, again and again, filled anew for each run:"
    );
    assert!(lines[2].starts_with("depth 0: identical, ") && lines[3].starts_with("depth 9: identical, "));
    let report = std::fs::read_to_string(json).expect("the file was written");
    let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
    assert_eq!((&report["identical"], &report["runs"]), (&true.into(), &2.into()));
    assert_eq!(report["depths"][1]["output_ids"].as_array().map(Vec::len), Some(5));
    misused(&["repeat", "--runs", "1"], "--runs");
    refused(
        &["repeat", "--device", "cpu", "--depth", "9999999"],
        &["the model is made for"],
    );
}
