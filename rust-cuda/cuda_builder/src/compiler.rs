//! Finding a Rust compiler that can make device code.
//!
//! It must be new enough to mark device functions convergent, have the NVPTX backend, and have the source of the
//! `core` library that belongs to it, because nobody ships `core` compiled for a GPU.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A compiler's version.
pub type Version = (u32, u32, u32);

/// The first compiler that marks device functions convergent. With older ones the optimiser may move a barrier into a
/// branch.
pub const OLDEST_COMPILER: Version = (1, 96, 0);

/// The library source's witness, relative to the compiler's sysroot.
const CORE: &str = "lib/rustlib/src/rust/library/core/src/lib.rs";

/// A compiler that serves.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// The compiler itself.
    pub rustc: PathBuf,
    /// The cargo beside it.
    pub cargo: PathBuf,
    /// What it says of itself: `rustc 1.96.0 (ac68faa20 2026-05-25)`.
    pub description: String,
    /// The GPUs that it knows.
    cpus: Vec<String>,
}

impl Compiler {
    /// Whether it can make code for that name, `sm_90`.
    pub fn knows(&self, arch: &str) -> bool {
        self.cpus.iter().any(|cpu| cpu == arch)
    }
}

/// No compiler serves.
#[derive(Clone, Debug)]
pub struct NoCompiler {
    /// Each one looked at, with the reason against it.
    pub tried: Vec<(PathBuf, String)>,
    /// The command that mends it.
    pub remedy: &'static str,
}

impl std::fmt::Display for NoCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no Rust compiler for device code")?;
        for (path, reason) in &self.tried {
            write!(f, "; {}: {reason}", path.display())?;
        }
        write!(f, "; to get one: {}", self.remedy)
    }
}

impl std::error::Error for NoCompiler {}

/// The first compiler that serves: `explicit` alone where one is named, else the active toolchain, the other rustup
/// toolchains by name, and the system's own.
///
/// # Errors
/// [`NoCompiler`] with the reason against each.
pub fn discover(explicit: Option<&Path>) -> Result<Compiler, NoCompiler> {
    let candidates = explicit.map_or_else(candidates, |path| vec![path.to_path_buf()]);
    let mut tried: Vec<(PathBuf, String)> = Vec::new();
    for candidate in candidates {
        match inspect(&candidate) {
            Ok(compiler) => return Ok(compiler),
            Err(reason) => tried.push((candidate, reason)),
        }
    }
    Err(NoCompiler {
        remedy: remedy(&tried),
        tried,
    })
}

/// Where compilers are looked for, in order, without repetition.
fn candidates() -> Vec<PathBuf> {
    let active = std::env::var_os("RUSTC").map_or_else(|| "rustc".into(), PathBuf::from);
    let mut found = vec![resolve(&active).unwrap_or(active)];
    for path in rustup_toolchains().into_iter().chain(["/usr/bin/rustc".into()]) {
        if path.exists() && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// The compiler that rustup's proxy stands for: the one in the sysroot that it names.
fn resolve(rustc: &Path) -> Option<PathBuf> {
    let sysroot = ask(rustc, &["--print", "sysroot"]).ok()?;
    let real = Path::new(sysroot.trim()).join("bin/rustc");
    real.exists().then_some(real)
}

/// The compilers that rustup keeps, by name.
fn rustup_toolchains() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".rustup"));
    let Some(rustup) = std::env::var_os("RUSTUP_HOME").map(PathBuf::from).or(home) else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(rustup.join("toolchains"))
        .into_iter()
        .flatten()
        .flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.path().join("bin/rustc")).collect();
    found.sort();
    found
}

/// The compiler at `rustc`, or what is against it.
fn inspect(rustc: &Path) -> Result<Compiler, String> {
    let description = ask(rustc, &["--version"])?.trim().to_owned();
    let version = parse_version(&description).ok_or_else(|| format!("its version is unclear: {description}"))?;
    if version < OLDEST_COMPILER {
        let (major, minor, _) = OLDEST_COMPILER;
        return Err(format!("{}.{} is older than {major}.{minor}", version.0, version.1));
    }
    let sysroot = PathBuf::from(ask(rustc, &["--print", "sysroot"])?.trim());
    if !sysroot.join(CORE).exists() {
        return Err("has no library source (rust-src)".to_owned());
    }
    let cargo = sysroot.join("bin/cargo");
    if !cargo.exists() {
        return Err("has no cargo beside it".to_owned());
    }
    let cpus = ask(rustc, &["--print", "target-cpus", "--target", "nvptx64-nvidia-cuda"])?;
    let cpus: Vec<_> = cpus
        .split_whitespace()
        .filter(|word| word.starts_with("sm_"))
        .map(str::to_owned)
        .collect();
    if cpus.is_empty() {
        return Err("was built without the NVPTX backend".to_owned());
    }
    Ok(Compiler {
        rustc: rustc.to_path_buf(),
        cargo,
        description,
        cpus,
    })
}

/// The compiler's answer on standard output.
fn ask(rustc: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(rustc)
        .args(arguments)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.lines().next().unwrap_or("it failed without a word").to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `rustc 1.96.0 (ac68faa20 2026-05-25)` and `rustc 1.97.0-nightly (…)` as numbers.
fn parse_version(description: &str) -> Option<Version> {
    let word = description.split_whitespace().nth(1)?;
    let mut numbers = word.split(['.', '-']).map(str::parse::<u32>);
    let mut next = || numbers.next()?.ok();
    Some((next()?, next()?, next()?))
}

/// The command that makes the nearest candidate serve.
fn remedy(tried: &[(PathBuf, String)]) -> &'static str {
    let only_source_missing = tried.iter().any(|(path, reason)| {
        reason.contains("rust-src") && path.components().any(|part| part.as_os_str() == "toolchains")
    });
    if Path::new("/usr/bin/apt-get").exists() && !only_source_missing {
        "apt-get install rustc-web rust-web-src cargo-web"
    } else {
        "rustup update stable && rustup component add rust-src"
    }
}

/// Existing files that change when a compiler is installed: a build without one watches them.
pub(crate) fn witnesses() -> Vec<PathBuf> {
    let toolchains = rustup_toolchains();
    let components = toolchains
        .iter()
        .filter_map(|rustc| Some(rustc.parent()?.parent()?.join("lib/rustlib/components")));
    let all = components.chain(["/var/lib/dpkg/status".into(), "/usr/bin/rustc".into()]);
    all.filter(|path| path.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::{discover, parse_version};
    use std::fs;
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    #[test]
    fn versions_of_releases_and_nightlies() {
        assert_eq!(parse_version("rustc 1.96.0 (ac68faa20 2026-05-25)"), Some((1, 96, 0)));
        assert_eq!(
            parse_version("rustc 1.97.0-nightly (e50aa6fba 2026-05-19)"),
            Some((1, 97, 0))
        );
        assert_eq!(parse_version("cc 12"), None);
    }

    /// A stand-in compiler of that version in `folder`, which knows `cpus`.
    fn stand_in(folder: &Path, version: &str, cpus: &str) -> PathBuf {
        let rustc = folder.join("rustc");
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in --version) echo 'rustc {version} (0 0)';; *sysroot) echo '{}';; *target-cpus*) echo '{cpus}';; esac\n",
            folder.display()
        );
        // Written by a process of its own: what another test starts could inherit a file open for writing here, and such
        // a file cannot be run.
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(&rustc)
            .stdin(Stdio::piped());
        let mut shell = shell.spawn().expect("there is a shell");
        let mut input = shell.stdin.take().expect("it is piped");
        input.write_all(script.as_bytes()).expect("it reads");
        drop(input);
        assert!(shell.wait().expect("it ends").success());
        rustc
    }

    fn reason_against(rustc: &Path) -> String {
        discover(Some(rustc)).expect_err("it does not serve").to_string()
    }

    #[test]
    fn what_is_missing_is_named_one_after_the_other() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let old = stand_in(folder.path(), "1.95.0", "sm_90");
        assert!(reason_against(&old).contains("1.95 is older than 1.96"));
        let rustc = stand_in(folder.path(), "1.96.0", "sm_90 sm_120a");
        assert!(reason_against(&rustc).contains("rust-src"));
        let core = folder.path().join(super::CORE);
        fs::create_dir_all(core.parent().expect("it has one")).expect("the folder is writable");
        fs::write(core, "").expect("the folder is writable");
        assert!(reason_against(&rustc).contains("no cargo"));
        fs::create_dir(folder.path().join("bin")).expect("the folder is writable");
        fs::write(folder.path().join("bin/cargo"), "").expect("the folder is writable");
        let compiler = discover(Some(&rustc)).expect("nothing is missing now");
        assert!(compiler.knows("sm_120a") && !compiler.knows("sm_121a"));
        let without = stand_in(folder.path(), "1.96.0", "");
        assert!(reason_against(&without).contains("NVPTX"));
    }

    #[test]
    fn a_compiler_that_is_not_there_is_named_with_a_remedy() {
        let said = reason_against(Path::new("nowhere/rustc"));
        assert!(
            said.contains("nowhere/rustc") && said.contains("to get one: "),
            "{said}"
        );
        assert!(!said.contains('\n'));
    }
}
