//! The one error type of the file side: which file, what in it, what is wrong. Always a single line.

use std::fmt;
use std::path::Path;

/// Longest stretch of a file's own text (a key, a name) that a message repeats.
const QUOTE_LIMIT: usize = 80;

/// What is wrong with a GGUF file, or with reading or writing it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}: {kind}")]
pub struct Error {
    file: String,
    kind: Box<ErrorKind>,
}

/// Where the problem lies. The texts are for people; match on the variant only.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file cannot be opened, mapped, read or written.
    #[error("{0}")]
    Io(String),
    /// The container's structure is broken.
    #[error("{problem} (at byte {at})")]
    Container {
        /// Offset in the file where the broken field starts.
        at: u64,
        /// What is wrong.
        problem: String,
    },
    /// A metadata key is missing or its value is not usable.
    #[error("key {}: {problem}", Quoted(.key))]
    Metadata {
        /// The key.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// A tensor is missing or not usable.
    #[error("tensor {}: {problem}", Quoted(.name))]
    Tensor {
        /// The tensor's name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// The parts of a split file do not belong together.
    #[error("{0}")]
    Split(String),
}

impl Error {
    /// An error in `file`.
    pub fn new(file: &str, kind: ErrorKind) -> Self {
        Self {
            file: file.to_owned(),
            kind: Box::new(kind),
        }
    }

    /// The file, as it appears in the message.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What is wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }
}

impl ErrorKind {
    /// A problem with a metadata key.
    pub(crate) fn key(key: &str, problem: impl Into<String>) -> Self {
        Self::Metadata {
            key: key.to_owned(),
            problem: problem.into(),
        }
    }

    /// A problem with a tensor.
    pub(crate) fn tensor(name: &str, problem: impl Into<String>) -> Self {
        Self::Tensor {
            name: name.to_owned(),
            problem: problem.into(),
        }
    }
}

/// A path as messages show it: on one line whatever it contains.
pub(crate) fn file_label(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.chars().any(char::is_control) {
        text.escape_debug().to_string()
    } else {
        text.into_owned()
    }
}

/// Text from a file in quotes: control characters escaped, long text cut.
pub(crate) struct Quoted<T>(pub T);

impl<T: AsRef<str>> fmt::Display for Quoted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.as_ref();
        let cut = text.char_indices().nth(QUOTE_LIMIT).map(|(at, _)| at);
        write!(f, "'{}", text[..cut.unwrap_or(text.len())].escape_debug())?;
        f.write_str(if cut.is_some() { "…'" } else { "'" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_on_one_line_and_short() {
        let kind = ErrorKind::key(&format!("a\nb\u{1b}{}", "x".repeat(1 << 20)), "is missing");
        let text = Error::new("f.gguf", kind).to_string();
        assert!(text.starts_with("f.gguf: key 'a\\nb\\u{1b}xxx"), "{text}");
        assert!(text.ends_with("x…': is missing") && text.len() < 200, "{text}");
        assert_eq!(file_label(Path::new("a\nb")), "a\\nb");
    }
}
