//! The list as text.

use super::{KernelReport, OCCUPANCY_THREADS, Report};
use crate::doctor::Finding;
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kernel in &self.kernels {
            write!(f, "{kernel}")?;
        }
        let targets = if self.targets.is_empty() {
            "nothing".to_owned()
        } else {
            self.targets.join(", ")
        };
        writeln!(f, "\n{} kernels, compiled for {targets}", self.kernels.len())?;
        match &self.gpu {
            Finding::Found(name) => writeln!(
                f,
                "figures from {name}; occupancy for blocks of {OCCUPANCY_THREADS} threads"
            ),
            Finding::Missing(reason) => writeln!(f, "no figures: {reason}"),
        }
    }
}

impl fmt::Display for KernelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.name, self.file)?;
        writeln!(f, "    {}", self.computes)?;
        if let Some(usage) = self.usage {
            let shared = usage.static_shared_bytes;
            writeln!(
                f,
                "    {} registers, {shared} bytes shared, {} bytes local, {} blocks a multiprocessor",
                usage.registers, usage.local_bytes, usage.blocks_per_multiprocessor
            )?;
        }
        Ok(())
    }
}
