//! The bytes of a file: mapped, embedded or owned.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

use crate::error::ErrorKind;

/// Bytes that stay where they are for as long as the reader lives.
pub(super) enum Storage {
    Mapped(Mmap),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

impl Deref for Storage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Static(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl Storage {
    /// Maps a file read-only.
    pub(super) fn map(path: &Path) -> Result<Self, ErrorKind> {
        let problem = |e: io::Error| ErrorKind::Io(open_problem(path, &e));
        // Before it is opened: opening a pipe waits for somebody to write to it.
        check_mappable(&std::fs::metadata(path).map_err(problem)?)?;
        let file = File::open(path).map_err(problem)?;
        // SAFETY: the map is private and read-only. The one hazard left is another process that shortens the file
        // while it is mapped, which no reader of large files can exclude; the crate's documentation says so.
        let map = unsafe { Mmap::map(&file) };
        map.map(Self::Mapped)
            .map_err(|e| ErrorKind::Io(format!("cannot map the file: {e}")))
    }
}

/// One line on why a path cannot be opened.
fn open_problem(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound if path.is_symlink() => "the link leads to no file".into(),
        io::ErrorKind::NotFound => "no such file".into(),
        io::ErrorKind::PermissionDenied => "no permission to read the file".into(),
        _ => format!("cannot open the file: {error}"),
    }
}

/// Only regular, non-empty files can be mapped.
fn check_mappable(metadata: &Metadata) -> Result<(), ErrorKind> {
    let problem = match metadata {
        m if m.is_dir() => "is a directory, not a GGUF file",
        m if !m.is_file() => "is not a regular file",
        m if m.len() == 0 => "the file is empty",
        _ => return Ok(()),
    };
    Err(ErrorKind::Io(problem.into()))
}
