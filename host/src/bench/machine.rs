//! What a figure was measured on and with.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use sha2::{Digest, Sha256};
use sparkinfer_gguf::Gguf;

/// The machine and the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: Option<String>,
    /// Threads that it can run at once.
    pub threads: usize,
    /// The GPUs, as the driver's own tool `nvidia-smi` describes them; empty where there is none.
    pub gpus: Vec<GpuState>,
    /// The program's version.
    pub version: String,
    /// The commit of the checkout that the program lies in; none outside of one, or without git.
    pub commit: Option<Commit>,
    /// Seconds since 1970.
    pub unix_time: u64,
}

/// A GPU right after the measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuState {
    /// Its name.
    pub name: String,
    /// The driver's version.
    pub driver: String,
    /// Multiprocessor clock in MHz: now, and the highest.
    pub clock_mhz: [String; 2],
    /// Memory clock in MHz: now, and the highest.
    pub memory_clock_mhz: [String; 2],
    /// The power limit in W.
    pub power_limit_w: String,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Commit {
    /// Its hash.
    pub hash: String,
    /// Whether files differ from it.
    pub changed: bool,
}

impl Machine {
    /// Looks.
    pub fn look() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            cpu: std::fs::read_to_string("/proc/cpuinfo")
                .ok()
                .and_then(|text| cpu_name(&text)),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            gpus: gpus(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: std::env::current_exe()
                .ok()
                .and_then(|program| commit(program.parent()?)),
            unix_time: since_1970.as_secs(),
        }
    }
}

fn cpu_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// What a program prints on standard output; none where it cannot be run or fails.
fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

fn gpus() -> Vec<GpuState> {
    const FIELDS: &str = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,power.limit";
    let query = format!("--query-gpu={FIELDS}");
    let text = output_of(Command::new("nvidia-smi").args([&query, "--format=csv,noheader,nounits"]));
    text.unwrap_or_default().lines().filter_map(gpu_state).collect()
}

fn gpu_state(line: &str) -> Option<GpuState> {
    let fields: Vec<String> = line.split(", ").map(str::to_owned).collect();
    let [name, driver, clock, most_clock, memory, most_memory, power] = fields.try_into().ok()?;
    Some(GpuState {
        name,
        driver,
        clock_mhz: [clock, most_clock],
        memory_clock_mhz: [memory, most_memory],
        power_limit_w: power,
    })
}

fn commit(folder: &Path) -> Option<Commit> {
    let git = |arguments: &[&str]| output_of(Command::new("git").arg("-C").arg(folder).args(arguments));
    Some(Commit {
        hash: git(&["rev-parse", "HEAD"])?.trim().to_owned(),
        changed: !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty(),
    })
}

/// The SHA-256 of each of a model's files, in hexadecimal.
pub fn sha256(gguf: &Gguf) -> Vec<String> {
    gguf.contents().map(sha256_of).collect()
}

/// The SHA-256 of bytes, in hexadecimal.
pub(super) fn sha256_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_a_line() {
        let state = gpu_state("NVIDIA H200, 580.95.05, 1980, 1980, 3201, 3201, 700.00").unwrap();
        assert_eq!(
            (state.name.as_str(), state.driver.as_str()),
            ("NVIDIA H200", "580.95.05")
        );
        assert_eq!(state.memory_clock_mhz, ["3201", "3201"]);
        assert_eq!(gpu_state("Failed to initialize NVML"), None);
    }

    #[test]
    fn the_processor_has_a_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(cpu_name(text).as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu_name(""), None);
    }

    #[test]
    fn outside_a_checkout_there_is_no_commit() {
        assert_eq!(commit(Path::new("/")), None);
    }

    #[test]
    fn hashes_are_sha256() {
        let bytes = sparkinfer_gguf::writer::GgufWriter::new()
            .to_vec(|_, _| Ok(()))
            .unwrap();
        let expected: String = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(sha256(&Gguf::from_vec("empty", bytes).unwrap()), [expected]);
    }
}
