//! What this machine has and what the program would do with it.

mod text;

use crate::cuda::{self, DeviceInfo, Gpu, bandwidth};
use crate::tuning::{Known, store};
use serde::Serialize;
use std::fs;

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
    /// Where launch shapes come from for models that were not tuned, and how many were.
    pub launch_shapes: String,
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
        let gpus: Vec<_> = cuda::probe().unwrap_or_default().iter().map(GpuReport::new).collect();
        Self {
            driver: cuda::driver_version().map(|version| format!("CUDA {version}")).into(),
            choice: choose(cuda::select(None).map_err(|error| error.to_string()), &gpus),
            gpus,
            kernels: cuda::MODULES.iter().map(KernelsReport::new).collect(),
            device_compiler: cuda::DEVICE_COMPILER.into(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
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
            launch_shapes: launch_shapes(device),
        }
    }
}

/// Where launch shapes come from on `device`, and how many models were tuned on this machine.
fn launch_shapes(device: &DeviceInfo) -> String {
    let origin = Known::by_table(device).origin;
    let kept = store::folder().and_then(|folder| Some((fs::read_dir(&folder).ok()?.count(), folder)));
    match kept {
        Some((count, folder)) if count > 0 => {
            format!(
                "{origin}, those of {count} models by sparkinfer tune ({})",
                folder.display()
            )
        }
        _ => origin.to_string(),
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

/// The rule of `--device auto`: the first GPU that is new enough, if the kernels load there; else the CPU.
fn choose(selected: Result<DeviceInfo, String>, gpus: &[GpuReport]) -> Choice {
    let cpu = |why: &str| Choice {
        device: "cpu".to_owned(),
        why: why.to_owned(),
    };
    let number = match selected {
        Ok(device) => device.ordinal,
        Err(reason) => return cpu(&reason),
    };
    match gpus.iter().find(|gpu| gpu.number == number) {
        Some(GpuReport {
            kernels: Finding::Missing(reason),
            ..
        }) => cpu(reason),
        Some(gpu) => Choice {
            device: format!("cuda:{number}"),
            why: format!(
                "{} is the first usable GPU; a model that it cannot take runs on the CPU",
                gpu.name
            ),
        },
        None => cpu("the GPU went away"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(number: u32, kernels: Finding) -> GpuReport {
        GpuReport {
            number,
            name: format!("GPU {number}"),
            capability: "9.0".into(),
            multiprocessors: 1,
            memory_bytes: 1,
            kernels,
            measured_bandwidth: None,
            nominal_bandwidth: None,
            launch_shapes: "by rule".into(),
        }
    }

    fn device(ordinal: u32) -> DeviceInfo {
        DeviceInfo {
            ordinal,
            name: format!("GPU {ordinal}"),
            capability: (9, 0),
            memory_bytes: 1,
            multiprocessors: 1,
            multiprocessor_shared_bytes: 1,
            l2_bytes: 1,
            shared_bytes: 1,
            memory_clock_khz: 0,
            memory_bus_bits: 0,
        }
    }

    #[test]
    fn without_a_driver_the_cpu_is_chosen_and_the_reason_kept() {
        let choice = choose(Err("no NVIDIA driver found".to_owned()), &[]);
        assert_eq!(
            choice,
            Choice {
                device: "cpu".into(),
                why: "no NVIDIA driver found".into()
            }
        );
    }

    #[test]
    fn the_selected_gpu_is_chosen_if_the_kernels_load_there() {
        let gpus = [
            gpu(0, Finding::Missing("too old".into())),
            gpu(1, Finding::Found("sm_90".into())),
        ];
        assert_eq!(choose(Ok(device(1)), &gpus).device, "cuda:1");
        let refused = choose(Ok(device(0)), &gpus);
        assert_eq!((refused.device.as_str(), refused.why.as_str()), ("cpu", "too old"));
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
