//! What this machine has and what the program would do with it.

mod text;

use crate::cuda::{self, DeviceInfo, Gpu, bandwidth};
use serde::Serialize;

/// The findings, in the order in which one thing needs another.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The NVIDIA driver: the CUDA version that it supports, or why there is none.
    pub driver: Finding,
    /// The GPUs that it sees.
    pub gpus: Vec<GpuReport>,
    /// The kernels inside the program, one entry an architecture.
    pub kernels: Vec<KernelsReport>,
    /// The compiler that made the kernels, or how to get one.
    pub device_compiler: Finding,
    /// Threads that the CPU can run at once.
    pub threads: usize,
    /// What `generate` uses without `--device`, and why.
    pub choice: Choice,
}

/// Something that is there, or the reason why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// What it is.
    Found(String),
    /// Why it is not there.
    Missing(String),
}

impl<T: ToString, E: ToString> From<Result<T, E>> for Finding {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(found) => Self::Found(found.to_string()),
            Err(reason) => Self::Missing(reason.to_string()),
        }
    }
}

/// One GPU, opened and measured.
#[derive(Debug, Clone, Serialize)]
pub struct GpuReport {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Compute capability, as in `9.0`.
    pub capability: String,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// The architecture of the kernels that it runs, or why it runs none.
    pub kernels: Finding,
    /// Bytes a second that the streaming-read kernel gets; nothing where no kernels run.
    pub measured_bandwidth: Option<f64>,
    /// Bytes a second by memory clock and bus width; nothing where the driver does not tell the clock.
    pub nominal_bandwidth: Option<f64>,
}

/// Kernels inside the program.
#[derive(Debug, Clone, Serialize)]
pub struct KernelsReport {
    /// What they were compiled for.
    pub arch: &'static str,
    /// Their PTX version, as in `7.8`.
    pub ptx_version: String,
    /// Bytes of the PTX.
    pub bytes: usize,
}

/// The device that `generate` uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// Why that one.
    pub why: String,
}

impl Report {
    /// Looks, and measures each usable GPU for some milliseconds.
    pub fn new() -> Self {
        let probed = cuda::probe();
        let choice = choose(probed.as_deref().map_err(ToString::to_string));
        Self {
            driver: cuda::driver_version().map(|version| format!("CUDA {version}")).into(),
            gpus: probed.unwrap_or_default().iter().map(GpuReport::new).collect(),
            kernels: cuda::MODULES.iter().map(KernelsReport::new).collect(),
            device_compiler: cuda::DEVICE_COMPILER.into(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            choice,
        }
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

impl GpuReport {
    fn new(device: &DeviceInfo) -> Self {
        let opened = Gpu::open(Some(device.ordinal));
        let measured = opened.as_ref().ok().and_then(|gpu| bandwidth::measure(gpu).ok());
        let (major, minor) = device.capability;
        Self {
            number: device.ordinal,
            name: device.name.clone(),
            capability: format!("{major}.{minor}"),
            multiprocessors: device.multiprocessors,
            memory_bytes: device.memory_bytes,
            kernels: opened.map(|gpu| gpu.module().embedded().arch).into(),
            measured_bandwidth: measured,
            nominal_bandwidth: device.nominal_bandwidth(),
        }
    }
}

impl KernelsReport {
    fn new(module: &cuda::EmbeddedPtx) -> Self {
        let version = format!("{}.{}", module.ptx_version / 10, module.ptx_version % 10);
        Self {
            arch: module.arch,
            ptx_version: version,
            bytes: module.bytes,
        }
    }
}

/// The rule of `--device auto`: the first GPU that the kernels run on, else the CPU.
fn choose(probed: Result<&[DeviceInfo], String>) -> Choice {
    let cpu = |why: String| Choice {
        device: "cpu".to_owned(),
        why,
    };
    let devices = match probed {
        Ok(devices) => devices,
        Err(reason) => return cpu(reason),
    };
    let Some(device) = devices.iter().find(|device| device.is_supported()) else {
        return cpu("no GPU here is new enough for the kernels".to_owned());
    };
    if let Err(reason) = cuda::DEVICE_COMPILER {
        return cpu(format!("the program was built without GPU kernels: {reason}"));
    }
    Choice {
        device: format!("cuda:{}", device.ordinal),
        why: format!("{} is the first usable GPU", device.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_cpu_is_chosen_and_the_reason_kept() {
        let choice = choose(Err("no NVIDIA driver found".to_owned()));
        assert_eq!(
            choice,
            Choice {
                device: "cpu".into(),
                why: "no NVIDIA driver found".into()
            }
        );
        assert_eq!(choose(Ok(&[])).device, "cpu");
    }

    #[test]
    fn the_report_can_be_made_on_any_machine() {
        let report = Report::new();
        assert!(report.threads > 0);
        assert_eq!(
            report.kernels.is_empty(),
            matches!(report.device_compiler, Finding::Missing(_))
        );
        assert!(!report.gpus.is_empty() || report.choice.device == "cpu");
        let text = report.to_string();
        for heading in ["driver", "kernels", "device compiler", "threads", "generate uses"] {
            assert!(text.contains(heading), "{heading} is missing in:\n{text}");
        }
    }
}
