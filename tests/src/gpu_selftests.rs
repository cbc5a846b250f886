//! The self-tests of `cuda_std` on a GPU: every device operation against what it must compute, as in the emulator.

use cuda_std::launch::{KernelInfo, Launcher};
use cuda_std::selftest::{CASES, Case, THREADS, input};
use sparkinfer::cuda::{Buffer, EmbeddedPtx, Gpu, Module, Result, best_for, driver_version};

include!(concat!(env!("OUT_DIR"), "/selftests.rs"));

/// The self-tests' kernels, loaded on the GPU that `gpu` is.
///
/// # Errors
/// They were not built, or the driver refuses them.
pub fn load(gpu: &Gpu) -> Result<Gpu> {
    let context = gpu.context();
    let embedded = best_for(MODULES, context.device(), driver_version()?)?;
    let kernels: Vec<&'static KernelInfo> = here(embedded).map(|case| case.info).collect();
    Gpu::with_module(Module::load_kernels(context, embedded, &kernels)?)
}

/// The cases that code for this architecture can run.
fn here(embedded: &EmbeddedPtx) -> impl Iterator<Item = &'static Case> {
    let (major, minor) = embedded.capability();
    CASES.iter().filter(move |case| case.since <= 10 * major + minor)
}

/// The cases that the loaded kernels can run.
pub fn cases(gpu: &Gpu) -> impl Iterator<Item = &'static Case> {
    here(gpu.module().embedded())
}

/// Runs a case on so many inputs.
///
/// # Errors
/// The first output that is wrong, or what the driver reports.
pub fn run(gpu: &Gpu, case: &Case, seeds: u32) -> std::result::Result<String, String> {
    for seed in 0..seeds {
        let words = input(seed);
        let output = on_gpu(gpu, case, &words).map_err(|error| error.to_string())?;
        case.check(&words, &output)
            .map_err(|wrong| format!("seed {seed}: {wrong:?}"))?;
    }
    Ok(format!("{seeds} inputs"))
}

fn on_gpu(gpu: &Gpu, case: &Case, words: &[u32]) -> Result<Vec<u32>> {
    let x = Buffer::from_slice(gpu.stream(), words)?;
    let y = Buffer::from_slice(gpu.stream(), &vec![0xdead_beef; 8 * THREADS])?;
    gpu.launch(&case.launch(x.ptr(), y.ptr()))?;
    y.to_vec(gpu.stream())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_std::emu::{self, Emulator};

    #[test]
    fn every_case_was_built_for_hopper() {
        let Some(hopper) = MODULES.iter().find(|module| module.arch == "sm_90") else {
            assert!(DEVICE_COMPILER.is_err(), "a compiler and no kernels");
            return;
        };
        let text = hopper.text().expect("PTX");
        for case in CASES {
            assert!(
                text.contains(&format!(".entry {}(", case.info.name)),
                "{}",
                case.info.name
            );
        }
    }

    #[test]
    fn the_check_notices_a_wrong_word() {
        let words = input(1);
        for case in CASES {
            let (x, y) = (emu::Buffer::from_slice(&words), emu::Buffer::poisoned(8 * THREADS));
            Emulator::new().launch(&case.launch(x.ptr(), y.ptr())).expect("it runs");
            let mut output = y.to_vec();
            assert_eq!(case.check(&words, &output), Ok(()), "{}", case.info.name);
            output[137] ^= 0x4000_0000;
            assert!(case.check(&words, &output).is_err(), "{}", case.info.name);
        }
    }
}
