//! NVIDIA's assembler, `ptxas`: fetched from the Python package index, since no other part of CUDA is needed.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that holds it.
pub const PACKAGE: &str = "nvidia-cuda-nvcc==13.0.88";
/// Its place inside the package.
const PTXAS: &str = "nvidia/cu13/bin/ptxas";

/// What a kernel uses on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Registers a thread.
    pub registers: u32,
    /// Bytes of static shared memory a block.
    pub shared: u32,
    /// Bytes of local memory a thread.
    pub stack: u32,
    /// Bytes of stores of registers that did not fit.
    pub spill_stores: u32,
    /// Bytes of loads of them.
    pub spill_loads: u32,
}

/// The assembler inside `folder`, fetched if it is not there yet; `None` where pip cannot reach the index.
///
/// # Errors
/// A package that does not unpack.
pub fn find(folder: &Path) -> Result<Option<PathBuf>> {
    let ptxas = folder.join(PTXAS);
    if ptxas.exists() {
        return Ok(Some(ptxas));
    }
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--target",
    ]);
    let output = pip.arg(folder).arg(PACKAGE).output();
    match output {
        Ok(output) if output.status.success() && ptxas.exists() => Ok(Some(ptxas)),
        Ok(output) if output.status.success() => bail!("{PACKAGE} holds no {PTXAS}"),
        Ok(output) => {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr).trim());
            Ok(None)
        }
        Err(error) => {
            eprintln!("python3: {error}");
            Ok(None)
        }
    }
}

/// Assembles the file for `target` and returns what each kernel uses.
///
/// # Errors
/// The assembler's own complaint.
pub fn run(ptxas: &Path, file: &Path, target: &str) -> Result<BTreeMap<String, Usage>> {
    let arguments = ["-v", "-O3", "--output-file", "/dev/null", "--gpu-name", target];
    let output = Command::new(ptxas).args(arguments).arg(file).output();
    let output = output.with_context(|| format!("running {}", ptxas.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("ptxas refuses {} for {target}:\n{said}", file.display());
    }
    Ok(parse(&said))
}

/// Reads the assembler's report: for each kernel a line with its name, one about its stack, one about registers.
fn parse(report: &str) -> BTreeMap<String, Usage> {
    let mut found: BTreeMap<String, Usage> = BTreeMap::new();
    let mut current = String::new();
    for line in report.lines() {
        if let Some(rest) = line.split_once("Compiling entry function '").map(|(_, rest)| rest) {
            current = rest.split('\'').next().unwrap_or_default().to_owned();
            found.insert(current.clone(), Usage::default());
        } else if let Some(usage) = found.get_mut(&current) {
            read_line(usage, line);
        }
    }
    found
}

/// Takes the figures of one line: each stands in front of its unit, but for registers.
fn read_line(usage: &mut Usage, line: &str) {
    let before = |unit: &str| {
        let front = line.split_once(unit)?.0;
        front.split_whitespace().next_back()?.parse::<u32>().ok()
    };
    let figures = [
        (&mut usage.registers, before(" registers")),
        (&mut usage.shared, before(" bytes smem")),
        (&mut usage.stack, before(" bytes stack frame")),
        (&mut usage.spill_stores, before(" bytes spill stores")),
        (&mut usage.spill_loads, before(" bytes spill loads")),
    ];
    for (place, figure) in figures {
        *place = figure.unwrap_or(*place);
    }
}

/// A table of what each kernel uses.
pub fn summary(arch: &str, target: &str, usage: &BTreeMap<String, Usage>) -> String {
    let mut text = format!("PTX for {arch} on {target}: registers, shared bytes, stack bytes, spilled bytes");
    for (kernel, usage) in usage {
        let spilled = usage.spill_stores + usage.spill_loads;
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n  {kernel:40} {:4} {:7} {:6} {spilled:6}",
            usage.registers, usage.shared, usage.stack
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Usage, parse};

    const REPORT: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 1.000 ms
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
";

    #[test]
    fn the_report_is_read_for_each_kernel() {
        let found = parse(REPORT);
        let one = Usage {
            registers: 40,
            shared: 1024,
            stack: 16,
            spill_stores: 4,
            spill_loads: 8,
        };
        assert_eq!(found["one"], one);
        assert_eq!(
            found["two"],
            Usage {
                registers: 8,
                ..Usage::default()
            }
        );
    }
}
