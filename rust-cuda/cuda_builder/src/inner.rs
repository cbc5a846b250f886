//! The cargo inside the build: one run for one architecture.

use crate::{Arch, Compiler, CudaBuilder, Error, Ptx};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "nvptx64-nvidia-cuda";

/// What the outer cargo and rustup tell their children and the inner cargo must not hear.
const OUTER_SETTINGS: [&str; 11] = [
    "RUSTC",
    "RUSTDOC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET",
    "LD_LIBRARY_PATH",
];

/// Compiles the crate for one architecture and reads what came of it.
pub(crate) fn compile(builder: &CudaBuilder, compiler: &Compiler, target_dir: &Path, arch: Arch) -> Result<Ptx, Error> {
    let flags = flags(builder, arch)?;
    let folder = target_dir.join(folder_name(compiler, &flags, arch));
    let output = command(builder, compiler, &folder, &flags)
        .output()
        .map_err(Error::file(&compiler.cargo))?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Compile { arch, output });
    }
    let name = crate_name(&builder.path)?;
    let made = folder.join(TARGET).join(&builder.profile);
    let assembly = made.join("deps").join(format!("{name}.s"));
    let text = std::fs::read_to_string(&assembly).map_err(Error::file(&assembly))?;
    let text = crate::limits::apply(&text);
    let file = made.join(format!("{name}.ptx"));
    std::fs::write(&file, &text).map_err(Error::file(&file))?;
    let dep_info = made.join(format!("{name}.d"));
    let sources = std::fs::read_to_string(&dep_info).map_err(Error::file(&dep_info))?;
    let sources = parse_dep_info(&sources);
    Ok(Ptx {
        arch,
        text,
        file,
        sources,
        compiler: compiler.description.clone(),
    })
}

/// The compiler's flags for an architecture. The two about the target go together: LLVM otherwise writes the oldest
/// PTX version that knows the GPU's name, and refuses instructions that came after it.
fn flags(builder: &CudaBuilder, arch: Arch) -> Result<Vec<String>, Error> {
    let mut flags = vec![
        format!("-Ctarget-cpu={arch}"),
        format!("-Ctarget-feature=+ptx{}", arch.ptx_version()),
    ];
    if builder.line_info {
        let root = workspace_root(&builder.path)?;
        flags.push("-Cdebuginfo=line-directives-only".to_owned());
        flags.push(format!("--remap-path-prefix={}=.", root.display()));
    }
    Ok(flags)
}

/// The inner cargo's command line and environment.
fn command(builder: &CudaBuilder, compiler: &Compiler, folder: &Path, flags: &[String]) -> Command {
    let mut command = Command::new(&compiler.cargo);
    for name in OUTER_SETTINGS {
        command.env_remove(name);
    }
    command.env("RUSTC", &compiler.rustc);
    command.env("RUSTC_BOOTSTRAP", "1");
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    // Fat link-time optimisation leaves one self-contained PTX: there is nothing to link.
    command.env("CARGO_TARGET_NVPTX64_NVIDIA_CUDA_LINKER", "true");
    command.args([
        "rustc",
        "--quiet",
        "--lib",
        "--crate-type",
        "cdylib",
        "--target",
        TARGET,
        "-Zbuild-std=core",
    ]);
    command.args(["--profile", &builder.profile, "--color", "never"]);
    command.arg("--manifest-path").arg(builder.path.join("Cargo.toml"));
    command.arg("--target-dir").arg(folder);
    if !builder.features.is_empty() {
        command.args(["--features", &builder.features.join(",")]);
    }
    command.args(["--", "--emit=asm,dep-info"]);
    command
}

/// A folder for each combination that gives another PTX: cargo keeps the PTX under one name whatever the flags, and
/// would take one combination's file for another's. It also keeps the architectures off each other's locks.
fn folder_name(compiler: &Compiler, flags: &[String], arch: Arch) -> OsString {
    let mut hasher = DefaultHasher::new();
    (&compiler.rustc, &compiler.description, flags).hash(&mut hasher);
    format!("{arch}-{:08x}", hasher.finish() as u32).into()
}

/// The library's file name of the package in the folder `path`: its name with underscores.
fn crate_name(path: &Path) -> Result<String, Error> {
    let manifest = path.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).map_err(Error::file(&manifest))?;
    let name = package_name(&text).ok_or_else(|| Error::Setup(format!("{} names no package", manifest.display())))?;
    Ok(name.replace('-', "_"))
}

/// The value of `name` in the section `[package]`.
fn package_name(manifest: &str) -> Option<&str> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[package]").skip(1);
    let mut lines = section.take_while(|line| !line.trim_start().starts_with('['));
    lines.find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "name").then(|| value.trim().trim_matches('"'))
    })
}

/// The folder that holds the workspace: the furthest one above `path` with a lock file or, without any, `path`.
fn workspace_root(path: &Path) -> Result<PathBuf, Error> {
    let path = path.canonicalize().map_err(Error::file(path))?;
    let root = path
        .ancestors()
        .filter(|folder| folder.join("Cargo.lock").exists())
        .last();
    Ok(root.unwrap_or(&path).to_path_buf())
}

/// The files behind the colon of a Makefile rule, in which a space within a name is written `\ `.
fn parse_dep_info(text: &str) -> Vec<PathBuf> {
    let Some((_, files)) = text.lines().next().and_then(|line| line.split_once(": ")) else {
        return Vec::new();
    };
    let files = files.replace("\\ ", "\0");
    files
        .split_whitespace()
        .map(|file| file.replace('\0', " ").into())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{package_name, parse_dep_info};
    use std::path::PathBuf;

    #[test]
    fn the_package_is_named_in_its_own_section() {
        let manifest =
            "[lib]\nname = \"other\"\n[package]\nversion = \"1\"\nname = \"my-kernels\"\n[features]\nname = []\n";
        assert_eq!(package_name(manifest), Some("my-kernels"));
        assert_eq!(package_name("[workspace]\nmembers = []\n"), None);
    }

    #[test]
    fn dep_info_lists_files() {
        let files = parse_dep_info("/t/x.ptx: /a/lib.rs /my\\ folder/k.rs\n\n/a/lib.rs:\n");
        assert_eq!(files, [PathBuf::from("/a/lib.rs"), PathBuf::from("/my folder/k.rs")]);
        assert!(parse_dep_info("").is_empty());
    }
}
