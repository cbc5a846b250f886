//! The report as text.

use super::{Finding, GpuReport, Report};
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "driver            {}", self.driver)?;
        for gpu in &self.gpus {
            write!(f, "{gpu}")?;
        }
        for kernels in &self.kernels {
            let kilobytes = kernels.bytes as f64 / 1e3;
            writeln!(
                f,
                "kernels           {} (PTX {}, {kilobytes:.0} kB)",
                kernels.arch, kernels.ptx_version
            )?;
        }
        if self.kernels.is_empty() {
            writeln!(f, "kernels           none in this program")?;
        }
        writeln!(f, "device compiler   {}", self.device_compiler)?;
        writeln!(f, "threads           {}", self.threads)?;
        writeln!(f, "generate uses     {}: {}", self.choice.device, self.choice.why)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(text) => f.write_str(text),
            Self::Missing(reason) => write!(f, "none: {reason}"),
        }
    }
}

impl fmt::Display for GpuReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            name,
            capability,
            multiprocessors,
            ..
        } = self;
        let gigabytes = self.memory_bytes as f64 / 1e9;
        writeln!(
            f,
            "GPU {number}             {name}: compute capability {capability}, {multiprocessors} multiprocessors, {gigabytes:.1} GB"
        )?;
        writeln!(f, "  kernels         {}", self.kernels)?;
        let rate = |bandwidth: f64| format!("{:.0} GB/s", bandwidth / 1e9);
        let measured = self
            .measured_bandwidth
            .map_or("not measured".to_owned(), |b| format!("{} measured", rate(b)));
        let nominal = self
            .nominal_bandwidth
            .map_or(String::new(), |b| format!(", {} by the data sheet's rule", rate(b)));
        writeln!(f, "  memory read     {measured}{nominal}")?;
        writeln!(f, "  launch shapes   {}", self.launch_shapes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_takes_four_lines() {
        let gpu = GpuReport {
            number: 0,
            name: "NVIDIA H200".into(),
            capability: "9.0".into(),
            multiprocessors: 132,
            memory_bytes: 150_000_000_000,
            kernels: Finding::Found("sm_90".into()),
            measured_bandwidth: Some(4.65e12),
            nominal_bandwidth: None,
            launch_shapes: "by rule".into(),
        };
        let text = gpu.to_string();
        assert_eq!(text.lines().count(), 4);
        assert!(
            text.contains("132 multiprocessors, 150.0 GB") && text.contains("4650 GB/s measured\n"),
            "{text}"
        );
    }
}
