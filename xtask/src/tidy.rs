//! `cargo xtask tidy`: the house limits, measured.
//!
//! | what | limit |
//! | --- | --- |
//! | function length, median | 10 lines |
//! | function length, 95th percentile | 60 lines on the host, 100 in `device/` |
//! | longest function | 150 lines; 200 in `device/` under a [`functions::STRAIGHT_LINE_MARKER`] comment |
//! | file length | 800 lines, except the files that `xtask/tidy-tables.txt` lists |
//! | `.unwrap()` | only in tests |
//! | text | see [`text`] |
//! | crate folders | each has a README, or the folder above it has one |
//!
//! A function's length runs from its `fn` line to its closing brace, without the functions nested in it.
//! Tests count for the longest function, not for median and percentile.

mod files;
mod functions;
mod limits;
mod text;

use anyhow::{Context, Result, bail};
use files::SourceFile;
use functions::{Function, Scan};
use std::path::Path;

/// A breach of a limit.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// `path` or `path:line`.
    place: String,
    /// What is wrong and what to do.
    message: String,
}

impl Problem {
    fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            message: message.into(),
        }
    }

    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self::new(format!("{path}:{line}"), message)
    }
}

/// Checks the repository at `root`; prints each problem and one closing line.
pub fn run(root: &Path) -> Result<()> {
    let files = files::tracked(root)?;
    let tables = files::tables(root)?;
    let mut problems = text::check(&files, &tables);
    problems.extend(files::check_readmes(&files));
    let sources: Vec<&SourceFile> = files.iter().filter(|file| file.is_rust()).collect();
    let mut functions = Vec::new();
    for (file, scan) in sources.iter().zip(scan_all(&sources)?) {
        problems.extend(scan.unwraps.iter().map(|line| unwrap_problem(file, *line)));
        functions.extend(scan.functions);
    }
    problems.extend(limits::check(&functions));
    report(&files, &functions, &problems)
}

/// Scans every file; those of modules that only tests have are taken as tests.
fn scan_all(files: &[&SourceFile]) -> Result<Vec<Scan>> {
    let scan = |file: &&SourceFile| functions::scan(file).with_context(|| format!("cannot parse {}", file.path));
    let mut scans = files.iter().map(scan).collect::<Result<Vec<Scan>>>()?;
    let modules: Vec<String> = scans.iter().flat_map(|scan| scan.test_modules.clone()).collect();
    for (file, scan) in files.iter().zip(&mut scans) {
        if file.is_in(&modules) {
            scan.mark_as_test();
        }
    }
    Ok(scans)
}

fn unwrap_problem(file: &SourceFile, line: usize) -> Problem {
    Problem::at(
        &file.path,
        line,
        "unwrap() outside tests: return an error, or expect(\"why it cannot fail\")",
    )
}

fn report(files: &[SourceFile], functions: &[Function], problems: &[Problem]) -> Result<()> {
    for problem in problems {
        println!("{}: {}", problem.place, problem.message);
    }
    let summary = limits::summary(functions);
    println!("tidy: {} files, {} functions; {summary}", files.len(), functions.len());
    if !problems.is_empty() {
        bail!("tidy: {} problems", problems.len());
    }
    Ok(())
}
