//! Starts the real binary and takes apart what it said.

// Each test program uses the helpers it needs.
#![allow(dead_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The bundled model as a file.
pub fn tiny_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-qwen3moe-q4_k_m.gguf")
}

/// A file of `tests/data/`.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

/// The binary, not yet started, without a standard input.
pub fn sparkinfer(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sparkinfer"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a run said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Said {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

/// Runs the binary to its end.
pub fn run(arguments: &[&str]) -> Said {
    sparkinfer(arguments).output().expect("the binary starts").into()
}

/// Runs the binary to its end, and expects success.
pub fn run_well(arguments: &[&str]) -> Said {
    let said = run(arguments);
    assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
    said
}

/// Runs the binary with `input` piped in.
pub fn run_with_input(arguments: &[&str], input: &[u8]) -> Said {
    let mut child = sparkinfer(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child
        .stdin
        .take()
        .expect("stdin is piped")
        .write_all(input)
        .expect("the binary reads its input");
    child.wait_with_output().expect("the binary ends").into()
}

/// Expects exit code 1, nothing on standard output, and one line `error: …` with these parts.
pub fn refused(arguments: &[&str], parts: &[&str]) {
    let said = run(arguments);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{arguments:?}: {said:?}");
    assert!(
        said.err.starts_with("error: ") && said.err.lines().count() == 1,
        "{arguments:?}: {said:?}"
    );
    for part in parts {
        assert!(
            said.err.contains(part),
            "{arguments:?}: {part:?} is missing in {:?}",
            said.err
        );
    }
}

/// Expects exit code 2 and an explanation with this part.
pub fn misused(arguments: &[&str], part: &str) {
    let said = run(arguments);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{arguments:?}: {said:?}");
    assert!(
        said.err.contains(part),
        "{arguments:?}: {part:?} is missing in {:?}",
        said.err
    );
}
