//! Runs every kernel case, small models and bad situations on the GPU: `gpu-tests [--seeds N] [--json F] [FILTER]`; or
//! model files: `gpu-tests --models FOLDER`.
//!
//! Each case makes random shapes and inputs from a seed, launches the kernel and compares with the f64 reference; models
//! are compared with the CPU's f32 engine. With `--models` only the model files of a folder are tried: the same tokens as
//! on the CPU. The last line is `N passed, N failed`; the exit code is 0 only where something ran and nothing failed.

use clap::Parser;
use sparkinfer::cuda::Gpu;
use sparkinfer::gpu::cuda::CudaDevice;
use sparkinfer_device::testing::{Case, cases};
use sparkinfer_gguf::Gguf;
use sparkinfer_tests::gpu::GpuMachine;
use sparkinfer_tests::gpu_situations::{self, Place};
use sparkinfer_tests::{cuts, gpu_models, gpu_runtime, gpu_selftests};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs every kernel on the GPU against its f64 reference.
#[derive(Parser)]
struct Arguments {
    /// How many seeds each case is tried with
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Number of the GPU
    #[arg(long)]
    gpu: Option<u32>,
    /// The program `sparkinfer`, for situations of whole processes [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Kernels in PTX to check instead of the program's own: a trial is to be right before it is fast
    #[arg(long, value_name = "PATH")]
    ptx: Option<PathBuf>,
    /// Write all results as JSON
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Instead compare the tokens of the model files in this folder with the CPU's
    #[arg(long, value_name = "FOLDER")]
    models: Option<PathBuf>,
    /// Run only cases whose names contain this
    filter: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let gpu = match Gpu::open_with(arguments.gpu, arguments.ptx.as_deref()) {
        Ok(gpu) => gpu,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "{}, kernels for {}",
        gpu.context().device().name,
        gpu.module().embedded().arch
    );
    let filter = arguments.filter.clone().unwrap_or_default();
    let mut score = Score::default();
    match &arguments.models {
        Some(folder) => run_files(folder, &filter, arguments.gpu, &mut score),
        None => run_cases(&gpu, &arguments, &filter, &mut score),
    }
    println!("{} passed, {} failed", score.passed, score.failed);
    if let Some(path) = &arguments.json
        && let Err(error) = std::fs::write(path, score.to_json(&gpu))
    {
        eprintln!("error: cannot write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    if score.passed > 0 && score.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Everything that needs no files.
fn run_cases(gpu: &Gpu, arguments: &Arguments, filter: &str, score: &mut Score) {
    for (name, trial) in gpu_runtime::TRIALS.iter().filter(|(name, _)| name.contains(filter)) {
        score.note(name, trial(gpu).map_err(|error| error.to_string()));
    }
    run_selftests(gpu, filter, score);
    for case in cases::all().iter().filter(|case| case.name.contains(filter)) {
        let worst = try_seeds(gpu, case, arguments.seeds);
        score.note(
            case.name,
            worst.map(|worst| format!("{:.1} % of the error allowed", 100.0 * worst)),
        );
    }
    for case in gpu_models::cases() {
        let name = case.name();
        if name.contains(filter) {
            score.note(&name, run_model(&case, arguments.gpu));
        }
    }
    run_situations(gpu, arguments, filter, score);
}

/// Every operation of `cuda_std`, in a module of its own.
fn run_selftests(gpu: &Gpu, filter: &str, score: &mut Score) {
    let selftests = match gpu_selftests::load(gpu) {
        Ok(selftests) => selftests,
        Err(error) => return score.note("selftest", Err(error.to_string())),
    };
    for case in gpu_selftests::cases(&selftests).filter(|case| case.info.name.contains(filter)) {
        score.note(case.info.name, gpu_selftests::run(&selftests, case, 20));
    }
    if "selftest_clusters of each size".contains(filter) {
        score.note("selftest_clusters of each size", gpu_selftests::clusters(&selftests));
    }
}

fn run_situations(gpu: &Gpu, arguments: &Arguments, filter: &str, score: &mut Score) {
    let beside = || {
        std::env::current_exe()
            .ok()
            .map(|path| path.with_file_name("sparkinfer"))
    };
    let place = Place {
        gpu,
        number: arguments.gpu,
        program: arguments.program.clone().or_else(beside).unwrap_or_default(),
    };
    for (name, situation) in gpu_situations::SITUATIONS {
        if name.contains(filter) {
            score.note(name, situation(&place).map_err(|error| format!("{error:#}")));
        }
    }
}

/// A whole model on a device of its own.
fn run_model(case: &gpu_models::ModelCase, number: Option<u32>) -> Result<String, String> {
    let device = CudaDevice::open(number).map_err(|error| error.to_string())?;
    gpu_models::run(case, device).map_err(|error| format!("{error:#}"))
}

/// The model files of a folder; the first of several parts stands for all.
fn run_files(folder: &Path, filter: &str, number: Option<u32>, score: &mut Score) {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return score.note(&folder.to_string_lossy(), Err(error.to_string())),
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let later_part = name.contains("-of-") && !name.contains("-00001-of-");
        if name.ends_with(".gguf") && name.contains(filter) && !later_part {
            score.note(&name, run_file(&path, number).map_err(|error| format!("{error:#}")));
        }
    }
}

/// A model file on a device of its own.
fn run_file(path: &Path, number: Option<u32>) -> anyhow::Result<String> {
    let gguf = Gguf::open(path)?;
    let prompt: Vec<u32> = (0..24).map(|i| (i * i * 7 + 3 * i + 40) % 1000).collect();
    cuts::same_tokens(&gguf, CudaDevice::open(number)?, &prompt, 32)
}

/// What passed and what failed.
#[derive(Default)]
struct Score {
    passed: u32,
    failed: u32,
    results: Vec<serde_json::Value>,
}

impl Score {
    fn to_json(&self, gpu: &Gpu) -> String {
        let (device, kernels) = (&gpu.context().device().name, gpu.module().embedded().arch);
        let (passed, failed, results) = (self.passed, self.failed, &self.results);
        let all = serde_json::json!({
            "device": device, "kernels": kernels, "passed": passed, "failed": failed, "results": results,
        });
        format!("{all:#}\n")
    }

    fn note(&mut self, name: &str, outcome: Result<String, String>) {
        let (Ok(remark) | Err(remark)) = &outcome;
        let result = serde_json::json!({ "name": name, "passed": outcome.is_ok(), "remark": remark });
        self.results.push(result);
        match outcome {
            Ok(remark) => {
                self.passed += 1;
                println!("ok      {name:48} {remark}");
            }
            Err(reason) => {
                self.failed += 1;
                println!("FAILED  {name:48} {reason}");
            }
        }
    }
}

/// The worst error of the case over the seeds, as a share of what is allowed; or the first failure.
fn try_seeds(gpu: &Gpu, case: &Case, seeds: u64) -> Result<f64, String> {
    let mut worst = 0f64;
    for seed in 0..seeds {
        let mut machine = GpuMachine::new(gpu);
        let run = (case.run)(&mut machine, seed).and_then(|share| machine.check_guards().map(|()| share));
        worst = worst.max(run.map_err(|reason| format!("seed {seed}: {reason}"))?);
    }
    Ok(worst)
}
