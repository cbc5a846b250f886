//! llama.cpp's `llama-bench`, run live beside our own measurements, and the programs that lie beside it:
//! `llama-batched-bench` for several sequences, `llama-completion` for texts.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::completion;
use super::within::output_within;
use super::{BenchError, PEER_LIMIT, Result};
use crate::model::KvType;

/// Another engine on the same model file, measured the same way.
pub trait Peer {
    /// Tokens a second of decoding `tokens` tokens behind `depth` cached ones.
    ///
    /// # Errors
    /// It cannot be run, fails, or gives something else than was asked for.
    fn decode(&mut self, depth: usize, tokens: usize) -> Result<f64>;

    /// Tokens a second of decoding `tokens` tokens behind a text of about `depth` tokens.
    ///
    /// # Errors
    /// As [`Peer::decode`], and a text that it reads as another number of tokens.
    fn decode_behind(&mut self, text: &str, depth: usize, tokens: usize) -> Result<f64>;

    /// Tokens a second of reading a prompt of `tokens` tokens.
    ///
    /// # Errors
    /// As [`Peer::decode`].
    fn prompt(&mut self, tokens: usize) -> Result<f64>;

    /// Tokens a second of all of `sequences` sequences that decode `tokens` tokens each, in steps of all of them, behind
    /// `prompt` tokens of their own.
    ///
    /// # Errors
    /// As [`Peer::decode`].
    fn together(&mut self, sequences: usize, prompt: usize, tokens: usize) -> Result<f64>;

    /// What it says about itself; none before its first run.
    fn facts(&self) -> Option<PeerFacts>;
}

/// What a peer says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerFacts {
    /// Its name.
    pub name: String,
    /// Build number and commit.
    pub build: String,
    /// What it computes with.
    pub device: String,
    /// Its arguments, but for the model and the sizes.
    pub arguments: String,
    /// How it decodes behind a text; none if it did not.
    pub behind_text: Option<&'static str>,
}

/// A `llama-bench` program and the file to give it.
pub struct LlamaBench {
    binary: PathBuf,
    model: PathBuf,
    arguments: Vec<String>,
    limit: Duration,
    facts: Option<PeerFacts>,
    behind_text: Option<&'static str>,
}

/// One result, with the fields that are checked or kept.
#[derive(Deserialize)]
struct Run {
    build_commit: String,
    build_number: u64,
    cpu_info: String,
    gpu_info: String,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    samples_ts: Vec<f64>,
}

impl LlamaBench {
    /// All layers on the GPU, flash attention: its fastest settings at batch size 1.
    pub fn on_gpu(binary: &Path, model: &Path) -> Self {
        Self::new(binary, model, &["-ngl", "99", "-fa", "1"])
    }

    /// On that many threads of the CPU, flash attention.
    pub fn on_cpu(binary: &Path, model: &Path, threads: usize) -> Self {
        Self::new(
            binary,
            model,
            &["-ngl", "0", "-dev", "none", "-fa", "1", "-t", &threads.to_string()],
        )
    }

    /// With a cache of that type.
    #[must_use]
    pub fn with_cache(mut self, kv: KvType) -> Self {
        for flag in ["-ctk", "-ctv"] {
            self.arguments.extend([flag.to_owned(), kv.to_string()]);
        }
        self
    }

    /// Stopped where a run takes longer than that.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    fn new(binary: &Path, model: &Path, arguments: &[&str]) -> Self {
        Self {
            binary: binary.to_owned(),
            model: model.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            limit: PEER_LIMIT,
            facts: None,
            behind_text: None,
        }
    }

    /// Runs it once for these sizes: prompt, generated tokens, depth.
    fn run(&mut self, sizes: [usize; 3]) -> Result<f64> {
        let mut command = Command::new(&self.binary);
        command.arg("-m").arg(&self.model).args(&self.arguments);
        for (flag, size) in ["-p", "-n", "-d"].iter().zip(sizes) {
            command.args([*flag, &size.to_string()]);
        }
        command.args(["-r", "1", "-o", "json"]);
        let run = parse(&self.output(command)?.stdout, sizes).map_err(|problem| self.failed(&problem))?;
        let rate = run.samples_ts[0];
        self.facts = Some(self.facts_of(run));
        Ok(rate)
    }

    /// Runs `llama-batched-bench` once for these sizes: prompt, generated tokens, sequences.
    fn run_together(&self, sizes: [usize; 3]) -> Result<f64> {
        let [prompt, tokens, sequences] = sizes;
        let mut command = self.beside("llama-batched-bench");
        let room = sequences * (prompt + tokens);
        for (flag, size) in ["-npp", "-ntg", "-npl", "-c"]
            .iter()
            .zip([prompt, tokens, sequences, room])
        {
            command.args([*flag, &size.to_string()]);
        }
        command.args(["--output-format", "jsonl"]);
        parse_together(&self.output(command)?.stdout, sizes).map_err(|problem| self.failed(&problem))
    }

    /// Runs `llama-completion` behind a text, until it tells its times.
    fn run_behind(&self, text: &str, depth: usize, tokens: usize) -> Result<f64> {
        let failed = |error: std::io::Error| self.failed(&format!("cannot write its prompt: {error}"));
        let mut file = tempfile::NamedTempFile::new().map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        for _ in 0..completion::ATTEMPTS {
            let mut command = self.beside("llama-completion");
            command.args(completion::arguments(file.path(), depth, tokens));
            let log = self.output(command)?.stderr;
            let rate = completion::parse(&log, depth, tokens).map_err(|problem| self.failed(&problem))?;
            if let Some(rate) = rate {
                return Ok(rate);
            }
        }
        Err(self.failed("llama-completion did not tell its times"))
    }

    /// A program that lies beside `llama-bench`, with the model and the settings.
    fn beside(&self, name: &str) -> Command {
        let mut command = Command::new(self.binary.with_file_name(name));
        command.arg("-m").arg(&self.model).args(&self.arguments);
        command
    }

    /// What a program that ends well writes.
    fn output(&self, mut command: Command) -> Result<Output> {
        command.env("LD_LIBRARY_PATH", library_path(&self.binary));
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |error: std::io::Error| self.failed(&format!("{program}: {error}"));
        let output = output_within(&mut command, self.limit).map_err(failed)?;
        if output.status.success() {
            return Ok(output);
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().rev().find(|line| !line.trim().is_empty());
        Err(self.failed(&format!("{}: {}", output.status, line.unwrap_or("no message"))))
    }

    fn failed(&self, problem: &str) -> BenchError {
        BenchError::Peer {
            binary: self.binary.display().to_string(),
            problem: problem.to_owned(),
        }
    }

    fn facts_of(&self, run: Run) -> PeerFacts {
        PeerFacts {
            build: format!("{} ({})", run.build_number, run.build_commit),
            device: if run.gpu_info.is_empty() {
                run.cpu_info
            } else {
                run.gpu_info
            },
            ..self.untold()
        }
    }

    /// What is known where `llama-bench` has not run.
    fn untold(&self) -> PeerFacts {
        PeerFacts {
            name: "llama.cpp".to_owned(),
            build: "not told".to_owned(),
            device: "not told".to_owned(),
            arguments: self.arguments.join(" "),
            behind_text: None,
        }
    }
}

/// Where the program's own libraries lie, before whatever the caller searches.
pub fn library_path(binary: &Path) -> OsString {
    let mut path = binary.parent().unwrap_or(Path::new(".")).as_os_str().to_owned();
    if let Some(inherited) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(inherited);
    }
    path
}

/// The only result of a run, which must be of the sizes asked for and of one repetition.
fn parse(output: &[u8], sizes: [usize; 3]) -> std::result::Result<Run, String> {
    let mut runs: Vec<Run> =
        serde_json::from_slice(output).map_err(|error| format!("its output is not the expected JSON: {error}"))?;
    let (Some(run), true) = (runs.pop(), runs.is_empty()) else {
        return Err("it did not give exactly one result".to_owned());
    };
    let found = [run.n_prompt, run.n_gen, run.n_depth];
    if found != sizes {
        return Err(format!(
            "it measured prompt, tokens, depth {found:?} instead of {sizes:?}"
        ));
    }
    match run.samples_ts.as_slice() {
        [rate] if rate.is_finite() && *rate > 0.0 => Ok(run),
        samples => Err(format!("its rates are {samples:?}, not one positive number")),
    }
}

/// One result of `llama-batched-bench`, with the fields that are checked or kept.
#[derive(Deserialize)]
struct Together {
    pp: usize,
    tg: usize,
    pl: usize,
    speed_tg: f64,
}

/// The only result among the lines of a run, which must be of the sizes asked for.
fn parse_together(output: &[u8], sizes: [usize; 3]) -> std::result::Result<f64, String> {
    let text = String::from_utf8_lossy(output);
    let mut lines = text.lines().filter(|line| line.starts_with('{'));
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err("it did not give exactly one result".to_owned());
    };
    let run: Together =
        serde_json::from_str(line).map_err(|error| format!("its output is not the expected JSON: {error}"))?;
    let found = [run.pp, run.tg, run.pl];
    if found != sizes {
        return Err(format!(
            "it measured prompt, tokens, sequences {found:?} instead of {sizes:?}"
        ));
    }
    if run.speed_tg.is_finite() && run.speed_tg > 0.0 {
        Ok(run.speed_tg)
    } else {
        Err(format!("its rate is {}, not a positive number", run.speed_tg))
    }
}

impl Peer for LlamaBench {
    fn decode(&mut self, depth: usize, tokens: usize) -> Result<f64> {
        self.run([0, tokens, depth])
    }

    fn decode_behind(&mut self, text: &str, depth: usize, tokens: usize) -> Result<f64> {
        let rate = self.run_behind(text, depth, tokens)?;
        self.behind_text = Some(completion::COMMAND);
        Ok(rate)
    }

    fn prompt(&mut self, tokens: usize) -> Result<f64> {
        self.run([tokens, 0, 0])
    }

    fn together(&mut self, sequences: usize, prompt: usize, tokens: usize) -> Result<f64> {
        self.run_together([prompt, tokens, sequences])
    }

    fn facts(&self) -> Option<PeerFacts> {
        let untold = || self.behind_text.map(|_| self.untold());
        let facts = self.facts.clone().or_else(untold)?;
        Some(PeerFacts {
            behind_text: self.behind_text,
            ..facts
        })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"[{"build_commit": "abc", "build_number": 7, "cpu_info": "a CPU", "gpu_info": "a GPU",
        "n_prompt": 0, "n_gen": 16, "n_depth": 512, "avg_ts": 250.5, "samples_ns": [ 1 ], "samples_ts": [ 250.5 ]}]"#;

    /// Writes an executable through a process of its own: one that this process had open for writing could be inherited by
    /// what another test starts just then, and a file open for writing cannot be run.
    fn write_program(path: &Path, script: &str) {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path);
        let mut shell = shell.stdin(std::process::Stdio::piped()).spawn().unwrap();
        shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
    }

    /// A program that prints `output` and exits with `status`, and the folder it lies in.
    fn program(output: &str, status: i32) -> (tempfile::TempDir, LlamaBench) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("llama-bench");
        let script = format!(
            "#!/bin/sh\necho \"$@\" > \"$(dirname \"$0\")/arguments\"\necho 'it broke' >&2\ncat <<'END'\n{output}\nEND\nexit {status}\n"
        );
        write_program(&path, &script);
        let peer = LlamaBench::on_gpu(&path, Path::new("m.gguf"));
        (folder, peer)
    }

    #[test]
    fn a_run_gives_its_rate_and_its_build() {
        let (folder, mut peer) = program(OUTPUT, 0);
        assert_eq!(peer.decode(512, 16).unwrap(), 250.5);
        let arguments = std::fs::read_to_string(folder.path().join("arguments")).unwrap();
        assert_eq!(
            arguments.trim(),
            "-m m.gguf -ngl 99 -fa 1 -p 0 -n 16 -d 512 -r 1 -o json"
        );
        let facts = peer.facts().unwrap();
        assert_eq!((facts.build.as_str(), facts.device.as_str()), ("7 (abc)", "a GPU"));
    }

    #[test]
    fn several_sequences_are_measured_by_the_program_beside_it() {
        let (folder, mut peer) = program("", 1);
        let line =
            r#"{"n_kv_max": 544, "pp": 16, "tg": 128, "pl": 4, "t_tg": 0.78, "speed_tg": 655.5, "speed": 700.0}"#;
        let script = format!("#!/bin/sh\ncat <<'END'\nmain: n_kv_max = 544\n\n{line}\n\nEND\n");
        write_program(&folder.path().join("llama-batched-bench"), &script);
        assert_eq!(peer.together(4, 16, 128).unwrap(), 655.5);
        assert!(
            peer.together(2, 16, 128)
                .unwrap_err()
                .to_string()
                .contains("instead of [16, 128, 2]")
        );
        assert!(parse_together(b"", [1, 1, 1]).is_err());
        std::fs::remove_file(folder.path().join("llama-batched-bench")).unwrap();
        assert!(
            peer.together(4, 16, 128)
                .unwrap_err()
                .to_string()
                .contains("llama-batched-bench")
        );
    }

    #[test]
    fn a_text_is_read_by_the_program_beside_it() {
        let (folder, mut peer) = program("", 1);
        let script = "#!/bin/sh\nwhile [ \"$1\" != -f ]; do shift; done\ncp \"$2\" \"$(dirname \"$0\")/text\"\n\
            echo 'prompt eval time = 9.00 ms / 3 tokens' >&2\necho ' eval time = 8.00 ms / 2 runs' >&2\n";
        write_program(&folder.path().join("llama-completion"), script);
        assert_eq!(peer.facts(), None);
        assert_eq!(peer.decode_behind("three little words", 3, 2).unwrap(), 250.0);
        let text = std::fs::read_to_string(folder.path().join("text")).unwrap();
        assert_eq!(text, "three little words");
        let facts = peer.facts().unwrap();
        assert_eq!(
            (facts.arguments.as_str(), facts.behind_text),
            ("-ngl 99 -fa 1", Some(completion::COMMAND))
        );
        let error = peer.decode_behind("three", 300, 2).unwrap_err().to_string();
        assert!(error.contains("3 tokens instead of 300"), "{error}");
        write_program(&folder.path().join("llama-completion"), "#!/bin/sh\n");
        let error = peer.decode_behind("three", 3, 2).unwrap_err().to_string();
        assert!(error.ends_with("llama-completion did not tell its times"), "{error}");
    }

    #[test]
    fn whatever_is_not_the_result_is_refused() {
        let wrong = |output: &str, status, expected: &str| {
            let error = program(output, status).1.decode(512, 16).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        wrong(OUTPUT, 1, "it broke");
        wrong("", 0, "not the expected JSON");
        wrong("[]", 0, "exactly one result");
        wrong(&OUTPUT.replace("512", "0"), 0, "instead of [0, 16, 512]");
        wrong(&OUTPUT.replace("[ 250.5 ]", "[ ]"), 0, "not one positive number");
        wrong(&OUTPUT.replace("n_depth", "depth"), 0, "n_depth");
        let missing = LlamaBench::on_gpu(Path::new("no/such/llama-bench"), Path::new("m")).prompt(1);
        assert!(
            missing
                .unwrap_err()
                .to_string()
                .starts_with("the peer no/such/llama-bench: ")
        );
    }
}
