//! Where the prompt comes from.

use anyhow::{Context, Result, anyhow, ensure};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The prompt used when none is given: a sentence that the bundled model knows how to go on from.
pub const SAMPLE: &str = "Emma Woodhouse, handsome, clever, and rich,";

/// Bytes of the longest text that is read: more than any context holds.
const MOST_BYTES: u64 = 256 << 20;

/// Where to read the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The text itself.
    Text(String),
    /// A file.
    File(PathBuf),
    /// Standard input, to its end.
    Stdin,
    /// [`SAMPLE`].
    Sample,
}

impl Source {
    /// What the arguments ask for. Without any, a pipe or file on standard input is read; a terminal, a null device
    /// or a closed input means the sample.
    pub fn choose(text: Option<String>, file: Option<&Path>, stdin: bool, stdin_has_data: bool) -> Self {
        match (text, file) {
            (Some(text), _) => Source::Text(text),
            (None, Some(path)) if path == Path::new("-") => Source::Stdin,
            (None, Some(path)) => Source::File(path.to_path_buf()),
            (None, None) if stdin || stdin_has_data => Source::Stdin,
            (None, None) => Source::Sample,
        }
    }

    /// Reads the prompt. One newline at the end of a file or of standard input is the editor's or the shell's, not
    /// the prompt's: it is left out.
    ///
    /// # Errors
    /// A file that cannot be read, or bytes that are no UTF-8: says where and from which byte on.
    pub fn read(self) -> Result<String> {
        match self {
            Source::Text(text) => Ok(text),
            Source::Sample => Ok(SAMPLE.to_owned()),
            Source::File(path) => Ok(trimmed(read_text(&path)?)),
            Source::Stdin => Ok(trimmed(read_most(std::io::stdin(), "standard input", MOST_BYTES)?)),
        }
    }
}

/// Reads a text file, as it is.
///
/// # Errors
/// A file that cannot be read or is longer than 256 MiB, or bytes that are no UTF-8: says where and from which byte on.
pub fn read_text(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    read_most(file, &name, MOST_BYTES)
}

/// Reads a text of `most` bytes at most: what never ends is refused before it fills the memory.
fn read_most(source: impl Read, name: &str, most: u64) -> Result<String> {
    let mut bytes = Vec::new();
    let read = source.take(most + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {name}"))?;
    ensure!(
        bytes.len() as u64 <= most,
        "{name} has more than {most} bytes: shorten it"
    );
    text(bytes, name)
}

fn text(bytes: Vec<u8>, from: &str) -> Result<String> {
    String::from_utf8(bytes)
        .map_err(|error| anyhow!("{from} is not UTF-8 from byte {} on", error.utf8_error().valid_up_to()))
}

fn trimmed(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

/// Whether standard input is a pipe, a socket or a file, and so has something to say.
pub fn stdin_has_data() -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileTypeExt;
    let Ok(handle) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return false;
    };
    let kind = File::from(handle).metadata().map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket() || kind.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_come_before_standard_input() {
        let choose = |text: Option<&str>, file: Option<&str>, stdin, piped| {
            Source::choose(text.map(str::to_owned), file.map(Path::new), stdin, piped)
        };
        assert_eq!(choose(Some("a"), None, false, true), Source::Text("a".into()));
        assert_eq!(choose(None, Some("f"), false, true), Source::File("f".into()));
        assert_eq!(choose(None, Some("-"), false, false), Source::Stdin);
        assert_eq!(choose(None, None, true, false), Source::Stdin);
        assert_eq!(choose(None, None, false, true), Source::Stdin);
        assert_eq!(choose(None, None, false, false), Source::Sample);
    }

    #[test]
    fn one_final_newline_goes() {
        assert_eq!(trimmed("a\n\n".into()), "a\n");
        assert_eq!(trimmed("a".into()), "a");
    }

    #[test]
    fn bytes_that_are_no_text_are_located() {
        let error = text(b"ab\xff".to_vec(), "p.txt").unwrap_err();
        assert_eq!(error.to_string(), "p.txt is not UTF-8 from byte 2 on");
    }

    #[test]
    fn texts_without_an_end_are_refused() {
        assert_eq!(read_most(&b"abc"[..], "p.txt", 3).unwrap(), "abc");
        let error = read_most(std::io::repeat(b'y'), "standard input", 3).unwrap_err();
        assert_eq!(error.to_string(), "standard input has more than 3 bytes: shorten it");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Source::File("no/such/prompt".into()).read().unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot read no/such/prompt: "));
    }
}
