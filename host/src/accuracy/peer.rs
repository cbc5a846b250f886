//! llama.cpp's `llama-perplexity`, run on the same file and text.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde::Serialize;

use super::base_file::BaseFile;
use super::{AccuracyError, Result};
use crate::bench::{PEER_LIMIT, library_path, output_within};

/// A `llama-perplexity` program, and where it shall compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlamaPerplexity {
    binary: PathBuf,
    arguments: Vec<String>,
    limit: Duration,
}

/// What a peer was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerRun {
    /// Its build, as it says with `--version`.
    pub build: String,
    /// Its arguments, but for files and sizes.
    pub arguments: String,
}

impl LlamaPerplexity {
    /// All layers on the GPU, with flash attention.
    pub fn on_gpu(binary: &Path) -> Self {
        Self::new(binary, &["-ngl", "99", "-fa", "on"])
    }

    /// On that many threads of the CPU, with flash attention.
    pub fn on_cpu(binary: &Path, threads: usize) -> Self {
        let threads = threads.to_string();
        Self::new(binary, &["-ngl", "0", "-dev", "none", "-fa", "on", "-t", &threads])
    }

    /// The same with a cache of this type, as llama.cpp calls it.
    #[must_use]
    pub fn with_cache(mut self, kind: &str) -> Self {
        self.arguments.extend(["-ctk", kind, "-ctv", kind].map(str::to_owned));
        self
    }

    /// Stopped where a run takes longer than that.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    fn new(binary: &Path, arguments: &[&str]) -> Self {
        Self {
            binary: binary.to_owned(),
            limit: PEER_LIMIT,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        }
    }

    /// Scores `windows` windows of `window` tokens of the text in `text` with the model in `model`, and opens what it
    /// wrote to `output`.
    ///
    /// # Errors
    /// A program that cannot be run or fails, or an output that is not of its format.
    pub fn run(&self, model: &Path, text: &Path, window: usize, windows: usize, output: &Path) -> Result<BaseFile> {
        let mut command = self.command();
        command.arg("-m").arg(model).arg("-f").arg(text).args(&self.arguments);
        command.args(["-c", &window.to_string(), "--chunks", &windows.to_string()]);
        command.arg("--kl-divergence-base").arg(output);
        let ended = self.output_of(&mut command)?;
        if !ended.status.success() {
            let text = String::from_utf8_lossy(&ended.stderr);
            let line = text.lines().rev().find(|line| !line.trim().is_empty());
            return Err(self.failed(format!("{}: {}", ended.status, line.unwrap_or("no message"))));
        }
        if !output.is_file() {
            return Err(self.failed("wrote no predictions; is it llama-perplexity?".to_owned()));
        }
        BaseFile::open(output).map_err(|error| self.failed(error.to_string()))
    }

    /// What it says about itself.
    ///
    /// # Errors
    /// A program that cannot be run.
    pub fn facts(&self) -> Result<PeerRun> {
        let ended = self.output_of(self.command().arg("--version"))?;
        let text = [ended.stdout, ended.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let build = text.lines().find_map(|line| line.trim().strip_prefix("version:"));
        Ok(PeerRun {
            build: build.unwrap_or("unknown").trim().to_owned(),
            arguments: self.arguments.join(" "),
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.env("LD_LIBRARY_PATH", library_path(&self.binary));
        command
    }

    fn output_of(&self, command: &mut Command) -> Result<Output> {
        output_within(command, self.limit).map_err(|error| self.failed(error.to_string()))
    }

    fn failed(&self, problem: String) -> AccuracyError {
        AccuracyError::Peer {
            binary: self.binary.display().to_string(),
            problem,
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A program that writes its arguments beside itself, says something, and ends with `status`.
    fn program(status: i32) -> (tempfile::TempDir, PathBuf) {
        written(&format!(
            "echo 'version: 7 (abc)'\necho \"$@\" > \"$(dirname \"$0\")/arguments\"\necho 'it broke' >&2\nexit {status}"
        ))
    }

    fn written(commands: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("llama-perplexity");
        let script = format!("#!/bin/sh\n{commands}\n");
        // Written by another process: a file that this one had open for writing might be inherited by another test's
        // child, and could then not be run.
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf '%s' \"$1\" > \"$0\""]).arg(&path).arg(script);
        assert!(shell.status().unwrap().success());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    }

    #[test]
    fn its_arguments_are_those_of_a_fair_run() {
        let (folder, path) = program(0);
        let peer = LlamaPerplexity::on_gpu(&path).with_cache("q8_0");
        let error = peer
            .run(Path::new("m"), Path::new("t"), 512, 3, &folder.path().join("none"))
            .unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("wrote no predictions; is it llama-perplexity?"),
            "{error}"
        );
        let arguments = std::fs::read_to_string(folder.path().join("arguments")).unwrap();
        let expected = "-m m -f t -ngl 99 -fa on -ctk q8_0 -ctv q8_0 -c 512 --chunks 3 --kl-divergence-base ";
        assert!(arguments.starts_with(expected), "{arguments}");
        assert_eq!(peer.facts().unwrap().build, "7 (abc)");
        assert!(
            LlamaPerplexity::on_cpu(&path, 2)
                .facts()
                .unwrap()
                .arguments
                .ends_with("-t 2")
        );
    }

    #[test]
    fn its_failure_is_told() {
        let (folder, path) = program(3);
        let run = |path: &Path| {
            let peer = LlamaPerplexity::on_cpu(path, 1);
            peer.run(Path::new("m"), Path::new("t"), 512, 1, &folder.path().join("o"))
                .unwrap_err()
                .to_string()
        };
        assert!(run(&path).contains("it broke"), "{}", run(&path));
        assert!(run(Path::new("no/such/program")).starts_with("the peer no/such/program: "));
    }

    #[test]
    fn one_that_hangs_is_stopped() {
        let (_folder, path) = written("exec sleep 60");
        let peer = LlamaPerplexity::on_cpu(&path, 1).within(Duration::from_millis(20));
        let error = peer.facts().unwrap_err().to_string();
        assert!(error.contains("--peer-limit"), "{error}");
    }
}
