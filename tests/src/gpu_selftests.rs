//! The self-tests of `cuda_std` on a GPU: every device operation against what it must compute, as in the emulator.

use cuda_std::emu::{self, Emulator};
use cuda_std::launch::{DevicePtr, KernelInfo, Launcher, PreparedLaunch};
use cuda_std::selftest::{CASES, Case, THREADS, input};
use sparkinfer::cuda::{Buffer, EmbeddedPtx, Gpu, Graph, Module, Result, best_for, driver_version};

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

/// Sizes of clusters to try; the last is more than every GPU with clusters must allow.
const CLUSTERS: [u32; 4] = [2, 4, 8, 16];

/// Runs the cases of clusters in clusters of each size that fits, replayed from a graph, against the emulator.
///
/// # Errors
/// Outputs that differ, no room for a cluster of 8, or what the driver reports.
pub fn clusters(gpu: &Gpu) -> std::result::Result<String, String> {
    let mut remarks = Vec::new();
    for case in cases(gpu).filter(|case| case.cluster > 1) {
        for blocks in CLUSTERS {
            let at_once = cluster_of(gpu, case, blocks)
                .map_err(|error| format!("{}, {blocks} blocks: {error}", case.info.name))?;
            remarks.push(format!("{blocks} blocks: {at_once} at once"));
        }
    }
    Ok(remarks.join(", "))
}

/// The launch of a case in one cluster of another size.
fn resized(case: &Case, blocks: u32, x: DevicePtr<u32>, y: DevicePtr<u32>) -> PreparedLaunch {
    let launch = case.launch(x, y);
    let mut config = launch.config().cluster(blocks);
    config.grid[0] = blocks;
    launch.with_config(config)
}

/// What a case computes in one cluster of another size, by the emulator.
fn emulated(case: &Case, blocks: u32, words: &[u32]) -> std::result::Result<Vec<u32>, emu::Fault> {
    let (x, y) = (emu::Buffer::from_slice(words), emu::Buffer::poisoned(8 * THREADS));
    Emulator::new().launch(&resized(case, blocks, x.ptr(), y.ptr()))?;
    Ok(y.to_vec())
}

/// Replays a case in one cluster of another size; how many of them the GPU holds at once.
fn cluster_of(gpu: &Gpu, case: &Case, blocks: u32) -> std::result::Result<u32, String> {
    let words = input(blocks);
    let wanted = emulated(case, blocks, &words).map_err(|fault| fault.to_string())?;
    let (at_once, output) = replayed(gpu, case, blocks, &words).map_err(|error| error.to_string())?;
    match output {
        Some(output) if output == wanted => Ok(at_once),
        Some(_) => Err("not what the emulator computes".to_owned()),
        None if blocks > 8 => Ok(0),
        None => Err("no room for one".to_owned()),
    }
}

fn replayed(gpu: &Gpu, case: &Case, blocks: u32, words: &[u32]) -> Result<(u32, Option<Vec<u32>>)> {
    let x = Buffer::from_slice(gpu.stream(), words)?;
    let y = Buffer::from_slice(gpu.stream(), &vec![0xdead_beef; 8 * THREADS])?;
    let launch = resized(case, blocks, x.ptr(), y.ptr());
    let at_once = gpu.active_clusters(&launch)?;
    if at_once == 0 {
        return Ok((0, None));
    }
    let graph = Graph::capture(gpu.stream(), || gpu.launch(&launch))?;
    graph.launch(gpu.stream())?;
    Ok((at_once, Some(y.to_vec(gpu.stream())?)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn clusters_of_every_size_are_rings_of_their_own() {
        for case in CASES.iter().filter(|case| case.cluster > 1) {
            let outputs = CLUSTERS.map(|blocks| emulated(case, blocks, &input(1)).expect("it runs"));
            assert_eq!(case.check(&input(1), &outputs[2]), Ok(()), "{}", case.info.name);
            assert!(outputs.windows(2).all(|pair| pair[0] != pair[1]), "{}", case.info.name);
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
