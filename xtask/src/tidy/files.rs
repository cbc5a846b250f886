//! Which files the checks look at.

use super::Problem;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Folders with data that nobody writes by hand.
const DATA: [&str; 3] = ["tests/data/", "models/tiny-", "rust-cuda/stubs/"];

/// Extensions of the text that is checked; `.ci/run` has none.
const TEXT: [&str; 8] = ["rs", "md", "toml", "txt", "sh", "py", "yml", "jinja"];

/// A text file of the repository.
pub struct SourceFile {
    /// Path from the root, with `/`.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl SourceFile {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the file counts as kernel code for the limits.
    pub fn is_device(&self) -> bool {
        self.path.starts_with("device/src/")
    }

    /// The folder in which the files of the file's modules are.
    pub fn module_folder(&self) -> &str {
        let roots = ["/mod.rs", "/lib.rs", "/main.rs", ".rs"];
        roots
            .iter()
            .find_map(|root| self.path.strip_suffix(root))
            .unwrap_or(&self.path)
    }

    /// Whether the file is one of these modules (paths without `.rs`) or below one.
    pub fn is_in(&self, modules: &[String]) -> bool {
        let below = |module: &String| self.path.strip_prefix(module.as_str());
        modules
            .iter()
            .filter_map(below)
            .any(|rest| rest == ".rs" || rest.starts_with('/'))
    }

    /// Whether the whole file is test code, by its place or its name.
    pub fn is_test(&self) -> bool {
        let in_test_folder = self.path.split('/').any(|part| part == "tests" || part == "benches");
        let stem = self.path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"));
        in_test_folder || stem.is_some_and(|stem| stem == "tests" || stem.ends_with("_tests"))
    }
}

/// The text files that git tracks or would track.
pub fn tracked(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for path in listing(root)?.lines().filter(|path| is_checked(path)) {
        let full = root.join(path);
        if full.is_file() {
            let text = std::fs::read_to_string(&full).with_context(|| format!("cannot read {path} as UTF-8"))?;
            files.push(SourceFile {
                path: path.to_owned(),
                text,
            });
        }
    }
    Ok(files)
}

fn listing(root: &Path) -> Result<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("tidy asks git which files are the project's, and git did not start")?;
    if !output.status.success() {
        bail!(
            "git ls-files failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).context("a tracked file's name is not UTF-8")
}

fn is_checked(path: &str) -> bool {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension);
    let text = path == ".ci/run" || extension.is_some_and(|extension| TEXT.contains(&extension));
    text && !DATA.iter().any(|data| path.starts_with(data))
}

/// Files that may be longer than the limit because they are tables: one path a line in `xtask/tidy-tables.txt`.
pub fn tables(root: &Path) -> Result<Vec<String>> {
    let text =
        std::fs::read_to_string(root.join("xtask/tidy-tables.txt")).context("cannot read xtask/tidy-tables.txt")?;
    let paths = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    Ok(paths.filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// Every crate's folder has a README, or shares that of the folder above.
pub fn check_readmes(files: &[SourceFile]) -> Vec<Problem> {
    let has = |folder: &str| files.iter().any(|file| file.path == format!("{folder}/README.md"));
    let crates = files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml"));
    let lacking = crates.filter(|folder| !has(folder) && !folder.rsplit_once('/').is_some_and(|(above, _)| has(above)));
    lacking
        .map(|folder| Problem::new(folder, "a crate's folder needs a README.md"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> SourceFile {
        SourceFile {
            path: path.into(),
            text: String::new(),
        }
    }

    #[test]
    fn tests_are_known_by_place_and_name() {
        assert!(file("host/tests/cli.rs").is_test());
        assert!(file("tests/src/lib.rs").is_test());
        assert!(file("host/src/cpu/tests.rs").is_test());
        assert!(!file("host/src/cpu/latest.rs").is_test());
    }

    #[test]
    fn files_belong_to_modules() {
        let modules = ["host/src/a/fixture".to_owned()];
        assert!(file("host/src/a/fixture.rs").is_in(&modules) && file("host/src/a/fixture/b.rs").is_in(&modules));
        assert!(!file("host/src/a/fixtures.rs").is_in(&modules));
    }

    #[test]
    fn data_and_binaries_are_not_checked() {
        assert!(is_checked("gguf/src/lib.rs") && is_checked(".ci/run"));
        assert!(!is_checked("tests/data/heldout.txt") && !is_checked("models/a.gguf") && !is_checked("Cargo.lock"));
    }

    #[test]
    fn a_readme_serves_its_folder_and_the_crates_below() {
        let files = [
            "a/Cargo.toml",
            "a/README.md",
            "b/c/Cargo.toml",
            "b/README.md",
            "d/Cargo.toml",
        ]
        .map(file);
        let problems = check_readmes(&files);
        assert_eq!(
            problems
                .iter()
                .map(|problem| problem.place.as_str())
                .collect::<Vec<_>>(),
            ["d"]
        );
    }
}
