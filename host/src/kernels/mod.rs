//! The list of kernels inside the program and, where there is a GPU, what each uses on it.

mod text;

use crate::cuda::{self, EmbeddedPtx, Error, Gpu};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Threads a block for which occupancy is given.
pub const OCCUPANCY_THREADS: u32 = 256;

/// The kernels.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Each kernel, by name.
    pub kernels: Vec<KernelReport>,
    /// What they are compiled for.
    pub targets: Vec<&'static str>,
    /// The GPU whose figures are given, or why there are none.
    pub gpu: crate::doctor::Finding,
}

/// One kernel.
#[derive(Debug, Clone, Serialize)]
pub struct KernelReport {
    /// Its name.
    pub name: &'static str,
    /// Its source file.
    pub file: &'static str,
    /// What it computes.
    pub computes: &'static str,
    /// Whether it can start before the launch in front of it has ended.
    pub dependent_launch: bool,
    /// What it uses on the GPU.
    pub usage: Option<Usage>,
}

/// What a kernel uses on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Registers a thread.
    pub registers: u32,
    /// Bytes of static shared memory a block.
    pub static_shared_bytes: u32,
    /// Bytes of local memory a thread.
    pub local_bytes: u32,
    /// Blocks of [`OCCUPANCY_THREADS`] threads, without dynamic shared memory, that one multiprocessor holds.
    pub blocks_per_multiprocessor: u32,
}

impl Report {
    /// All kernels, with figures from the first usable GPU.
    pub fn new() -> Self {
        let gpu = Gpu::open(None);
        let mut kernels: Vec<_> = sparkinfer_device::KERNELS
            .iter()
            .map(|kernel| KernelReport {
                name: kernel.name,
                file: kernel.file,
                computes: kernel.doc,
                dependent_launch: kernel.pdl,
                usage: gpu.as_ref().ok().and_then(|gpu| usage(gpu, kernel.name).ok()),
            })
            .collect();
        kernels.sort_by_key(|kernel| kernel.name);
        let targets = cuda::MODULES.iter().map(|module| module.arch).collect();
        Self {
            kernels,
            targets,
            gpu: gpu.map(|gpu| gpu.context().device().name.clone()).into(),
        }
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

fn usage(gpu: &Gpu, kernel: &str) -> Result<Usage, Error> {
    let resources = gpu.module().resources(kernel)?;
    Ok(Usage {
        registers: resources.registers,
        static_shared_bytes: resources.static_shared_bytes,
        local_bytes: resources.local_bytes,
        blocks_per_multiprocessor: gpu.module().blocks_per_multiprocessor(kernel, OCCUPANCY_THREADS, 0)?,
    })
}

/// Writes the PTX inside the program for `arch` to `folder/sparkinfer-ARCH.ptx` and returns that path.
///
/// # Errors
/// An architecture that the program does not hold, or a file that cannot be written, in one line.
pub fn write_ptx(arch: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let module = find(cuda::MODULES, arch)?;
    let file = folder.join(format!("sparkinfer-{arch}.ptx"));
    let text = module.text()?;
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, text));
    written.map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    Ok(file)
}

fn find(modules: &'static [EmbeddedPtx], arch: &str) -> anyhow::Result<&'static EmbeddedPtx> {
    let held: Vec<_> = modules.iter().map(|module| module.arch).collect();
    let found = modules.iter().find(|module| module.arch == arch);
    let held = if held.is_empty() {
        "none".to_owned()
    } else {
        held.join(", ")
    };
    found.ok_or_else(|| anyhow::anyhow!("this program holds no kernels for {arch}; it holds: {held}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_listed_and_described() {
        let report = Report::new();
        assert_eq!(report.kernels.len(), sparkinfer_device::KERNELS.len());
        assert!(report.kernels.is_sorted_by_key(|kernel| kernel.name));
        for kernel in &report.kernels {
            assert!(
                !kernel.computes.is_empty() && kernel.file.ends_with(".rs"),
                "{kernel:?}"
            );
            assert!(report.to_string().contains(kernel.name));
        }
    }

    #[test]
    fn the_ptx_that_is_written_is_for_that_architecture() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for module in cuda::MODULES {
            let file = write_ptx(module.arch, folder.path()).expect("the folder is writable");
            let text = std::fs::read_to_string(file).expect("it was written");
            assert!(text.contains(&format!(".target {}", module.arch)));
        }
        let refused = write_ptx("sm_10", folder.path())
            .expect_err("there is no such GPU")
            .to_string();
        assert!(
            refused.starts_with("this program holds no kernels for sm_10; it holds: "),
            "{refused}"
        );
    }
}
