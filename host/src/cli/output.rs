//! Writing to standard output when its reader may be gone.

use anyhow::Context;
use serde::Serialize;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Prints an answer to standard output: as JSON, or as text.
pub fn print(answer: &(impl Display + Serialize), as_json: bool) -> anyhow::Result<()> {
    if as_json {
        print_json(answer)
    } else {
        print_text(&answer.to_string())
    }
}

/// Prints an answer to standard output as indented JSON.
pub fn print_json(answer: &impl Serialize) -> anyhow::Result<()> {
    Ok(write(&serde_json::to_string_pretty(answer)?)?)
}

/// Prints an answer to standard output that is text already.
pub fn print_text(text: &str) -> anyhow::Result<()> {
    Ok(write(text)?)
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.trim_end().as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Says something beside the answer, on standard error. Where that is closed there is nobody to tell.
pub fn note(text: &impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Whether an error means that the reader of our output went away (`sparkinfer … | head`). That is no failure: the
/// reader has what it wanted.
pub fn is_closed(error: &anyhow::Error) -> bool {
    let causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.into_iter().any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

/// Fails before the measurement rather than behind it; a file that is there is left as it is.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    let opened = File::options().append(true).create(true).open(path);
    opened
        .map(drop)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a file whole.
pub fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broken_pipe_is_quiet() {
        let failed = |kind: ErrorKind| Err::<(), _>(io::Error::from(kind)).context("cannot write").unwrap_err();
        assert!(is_closed(&failed(ErrorKind::BrokenPipe)));
        assert!(!is_closed(&failed(ErrorKind::StorageFull)));
    }
}
