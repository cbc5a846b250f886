//! Runs every kernel case and small models on the GPU: `gpu-tests [--seeds N] [FILTER]`.
//!
//! Each case makes random shapes and inputs from a seed, launches the kernel and compares with the f64 reference; models
//! are compared with the CPU's f32 engine. The last line is `N passed, N failed`; the exit code is 0 only where something ran and nothing failed.

use clap::Parser;
use sparkinfer::cuda::Gpu;
use sparkinfer::gpu::cuda::CudaDevice;
use sparkinfer_device::testing::{Case, cases};
use sparkinfer_tests::gpu::GpuMachine;
use sparkinfer_tests::{gpu_models, gpu_runtime, gpu_selftests};
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
    /// Run only cases whose names contain this
    filter: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let gpu = match Gpu::open(arguments.gpu) {
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
    let filter = arguments.filter.unwrap_or_default();
    let mut score = Score::default();
    for (name, trial) in gpu_runtime::TRIALS.iter().filter(|(name, _)| name.contains(&filter)) {
        score.note(name, trial(&gpu).map_err(|error| error.to_string()));
    }
    run_selftests(&gpu, &filter, &mut score);
    for case in cases::all().iter().filter(|case| case.name.contains(&filter)) {
        let worst = try_seeds(&gpu, case, arguments.seeds);
        score.note(
            case.name,
            worst.map(|worst| format!("{:.1} % of the error allowed", 100.0 * worst)),
        );
    }
    for case in gpu_models::cases() {
        let name = case.name();
        if name.contains(&filter) {
            score.note(&name, run_model(&case, arguments.gpu));
        }
    }
    println!("{} passed, {} failed", score.passed, score.failed);
    if score.passed > 0 && score.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
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
}

/// A whole model on a device of its own.
fn run_model(case: &gpu_models::ModelCase, number: Option<u32>) -> Result<String, String> {
    let device = CudaDevice::open(number).map_err(|error| error.to_string())?;
    gpu_models::run(case, device).map_err(|error| format!("{error:#}"))
}

/// How many passed and failed.
#[derive(Default)]
struct Score {
    passed: u32,
    failed: u32,
}

impl Score {
    fn note(&mut self, name: &str, outcome: Result<String, String>) {
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
