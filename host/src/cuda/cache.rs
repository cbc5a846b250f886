//! Compiled kernels kept between runs, in the user's cache folder.
//!
//! A file is named by what its content depends on: the PTX's hash, the GPU and the driver. It begins with the
//! content's own hash, so that half a file is no file. Nothing here is an error: without a cache the program compiles.

use super::{DeviceInfo, EmbeddedPtx};
use std::fs;
use std::path::{Path, PathBuf};

/// A place for one compiled module.
#[derive(Debug)]
pub struct Entry {
    file: PathBuf,
}

impl Entry {
    /// Where the module's machine code for this GPU and the running driver is kept; `None` where the user has no
    /// cache folder.
    pub fn of(module: &EmbeddedPtx, device: &DeviceInfo) -> Option<Self> {
        Some(Self::inside(&folder("kernels")?, module, device, &driver_build()))
    }

    fn inside(folder: &Path, module: &EmbeddedPtx, device: &DeviceInfo, driver: &str) -> Self {
        let (major, minor) = device.capability;
        let driver = fnv1a(driver.as_bytes());
        let name = format!(
            "{}-{:016x}-{major}.{minor}-{driver:016x}.cubin",
            module.arch, module.hash
        );
        Self {
            file: folder.join(name),
        }
    }

    /// What was kept, if it is whole.
    pub fn load(&self) -> Option<Vec<u8>> {
        let mut bytes = fs::read(&self.file).ok()?;
        let content = bytes.split_off_checked(8)?;
        (bytes == fnv1a(&content).to_le_bytes()).then_some(content)
    }

    /// Keeps `cubin`. Written under another name first, so that a reader never sees a part; a failure leaves nothing
    /// behind.
    pub fn store(&self, cubin: &[u8]) {
        let part = self.file.with_extension(format!("part{}", std::process::id()));
        let content = [&fnv1a(cubin).to_le_bytes()[..], cubin].concat();
        let made = self
            .file
            .parent()
            .is_some_and(|folder| fs::create_dir_all(folder).is_ok());
        if made && (fs::write(&part, content).is_err() || fs::rename(&part, &self.file).is_err()) {
            let _ = fs::remove_file(&part);
        }
    }
}

/// Splitting that does not panic on short input.
trait SplitOffChecked {
    fn split_off_checked(&mut self, at: usize) -> Option<Vec<u8>>;
}

impl SplitOffChecked for Vec<u8> {
    fn split_off_checked(&mut self, at: usize) -> Option<Vec<u8>> {
        (self.len() >= at).then(|| self.split_off(at))
    }
}

/// The program's folder for `what` in the user's cache.
pub(crate) fn folder(what: &str) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).and_then(absolute);
    let home = || {
        std::env::var_os("HOME")
            .map(|home| Path::new(&home).join(".cache"))
            .and_then(absolute)
    };
    Some(cache.or_else(home)?.join("sparkinfer").join(what))
}

/// What tells one driver build from another: the kernel module's own description where the system shows it, else the
/// CUDA version.
pub(crate) fn driver_build() -> String {
    let version = super::driver_version().map_or(0, |version| version.0);
    let module = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    format!("{version} {module}")
}

/// The 64-bit FNV-1a hash.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::Entry;
    use crate::cuda::{DeviceInfo, EmbeddedPtx};
    use std::fs;
    use std::path::Path;

    fn entry(folder: &Path, ptx_hash: u64, driver: &str) -> Entry {
        let module = EmbeddedPtx {
            arch: "sm_90",
            ptx_version: 78,
            bytes: 0,
            hash: ptx_hash,
            deflated: &[],
        };
        let device = DeviceInfo {
            ordinal: 0,
            name: "some GPU".into(),
            capability: (9, 0),
            memory_bytes: 0,
            multiprocessors: 0,
            multiprocessor_shared_bytes: 0,
            l2_bytes: 0,
            shared_bytes: 0,
            memory_clock_khz: 0,
            memory_bus_bits: 0,
        };
        Entry::inside(folder, &module, &device, driver)
    }

    #[test]
    fn what_is_stored_is_loaded_under_the_same_key_only() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = folder.path().join("kernels");
        entry(&place, 1, "580").store(b"machine code");
        assert_eq!(entry(&place, 1, "580").load().as_deref(), Some(&b"machine code"[..]));
        assert_eq!(entry(&place, 2, "580").load(), None);
        assert_eq!(entry(&place, 1, "590").load(), None);
        assert_eq!(fs::read_dir(&place).expect("it was made").count(), 1);
    }

    #[test]
    fn a_damaged_file_counts_as_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let entry = entry(folder.path(), 1, "580");
        entry.store(b"machine code");
        let whole = fs::read(&entry.file).expect("it was stored");
        fs::write(&entry.file, &whole[..whole.len() - 1]).expect("it is ours");
        assert_eq!(entry.load(), None);
        fs::write(&entry.file, b"short").expect("it is ours");
        assert_eq!(entry.load(), None);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let blocked = folder.path().join("file");
        fs::write(&blocked, b"").expect("it is ours");
        let entry = entry(&blocked, 1, "580");
        entry.store(b"machine code");
        assert_eq!(entry.load(), None);
    }
}
