//! `cargo xtask ptx-gate`: what the compiler made of the kernels.
//!
//! The kernels are compiled for every architecture. For each, a checked-in table says how many barriers, shuffles,
//! matrix instructions, 16-byte loads, local memory accesses and calls it has: an optimiser that duplicates a barrier
//! or an array that leaves the registers changes a count and fails the gate. Nothing of panics or formatting may be
//! left. Then NVIDIA's assembler takes the PTX for every GPU generation; registers, shared memory and spills are
//! printed and held against a budget.

mod assembler;
mod budget;
mod counts;
mod table;

use anyhow::{Context, Result, bail};
use cuda_builder::{Arch, CudaBuilder, Ptx};
use std::path::Path;
use table::Table;

/// The counts that the kernels must have.
const TABLE: &str = "device/ptx-counts.tsv";
/// The local memory that kernels may use.
const BUDGET: &str = "device/spill-budget.txt";

/// Which GPUs each architecture's PTX is assembled for.
fn targets(arch: Arch) -> &'static [&'static str] {
    match arch {
        Arch::Sm80 => &["sm_80"],
        Arch::Sm90 => &["sm_90", "sm_120", "sm_121"],
        Arch::Sm120a => &["sm_120a"],
        Arch::Sm121a => &["sm_121a"],
    }
}

/// Runs the gate; with `bless` the table is written and not compared.
///
/// # Errors
/// Device code that does not compile or assemble, counts that differ, symbols that must not be there, spills over the
/// budget.
pub fn run(root: &Path, bless: bool) -> Result<()> {
    let builder = CudaBuilder::new(root.join("device"))
        .archs(Arch::ALL)
        .target_dir(root.join("target/cuda"));
    let built = builder.build().context("the PTX gate needs the device code compiled")?;
    let found = measure(&built);
    let mut problems: Vec<String> = built.iter().flat_map(forbidden).collect();
    if bless {
        std::fs::write(root.join(TABLE), found.to_string()).with_context(|| format!("writing {TABLE}"))?;
        println!("ptx-gate: wrote {TABLE}: {} rows", found.rows.len());
    } else {
        problems.extend(compare(root, &found)?);
    }
    problems.extend(assemble(root, &built)?);
    for problem in &problems {
        eprintln!("{problem}");
    }
    if !problems.is_empty() {
        bail!("ptx-gate: {} problems", problems.len());
    }
    println!(
        "ptx-gate: {} kernels as the table has them, by {}",
        found.rows.len(),
        found.compiler
    );
    Ok(())
}

/// The counts of what was built.
fn measure(built: &[Ptx]) -> Table {
    let compiler = built.first().map_or_else(String::new, |ptx| ptx.compiler.clone());
    let kernels = built.iter().flat_map(|ptx| {
        let named = |(kernel, counts)| ((ptx.arch.name().to_owned(), kernel), counts);
        counts::kernels(&ptx.text).into_iter().map(named)
    });
    Table {
        compiler,
        rows: kernels.collect(),
    }
}

/// Complaints about what must not be in any PTX.
fn forbidden(ptx: &Ptx) -> Vec<String> {
    let symbols = counts::forbidden_symbols(&ptx.text);
    symbols
        .into_iter()
        .map(|symbol| format!("{}: the PTX still contains {symbol}", ptx.arch))
        .collect()
}

/// Complaints about counts that are not the table's. Another compiler's code may differ in how often it unrolls; then
/// only local memory and calls count.
fn compare(root: &Path, found: &Table) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(TABLE))
        .with_context(|| format!("{TABLE} is not there: make it with `cargo xtask ptx-gate --bless`"))?;
    let expected = Table::parse(&text)?;
    let same_compiler = expected.compiler == found.compiler;
    if !same_compiler {
        println!(
            "ptx-gate: {TABLE} was made with {}, this is {}: differences in the code's size are shown and pass",
            expected.compiler, found.compiler
        );
    }
    let (fatal, tolerable) = expected.differences(found, same_compiler);
    for difference in tolerable {
        println!("{difference}");
    }
    Ok(fatal)
}

/// Assembles all of it, prints what each kernel uses, and returns the complaints.
fn assemble(root: &Path, built: &[Ptx]) -> Result<Vec<String>> {
    let Some(ptxas) = assembler::find(&root.join("target/tools"))? else {
        println!(
            "ptx-gate: SKIPPED the assembler: pip could not fetch {}",
            assembler::PACKAGE
        );
        return Ok(Vec::new());
    };
    let budget = std::fs::read_to_string(root.join(BUDGET)).unwrap_or_default();
    let budget = budget::parse(&budget)?;
    let mut problems = Vec::new();
    for ptx in built {
        for target in targets(ptx.arch) {
            let usage = assembler::run(&ptxas, &ptx.file, target)?;
            println!("{}", assembler::summary(ptx.arch.name(), target, &usage));
            problems.extend(budget::check(&budget, target, &usage));
        }
    }
    Ok(problems)
}
