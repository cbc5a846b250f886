//! What can go wrong with a tokenizer.

/// Longest stretch of a file's own text that a message repeats, in characters.
const QUOTE_LIMIT: usize = 60;

/// A tokenizer that cannot be built, or a text that it cannot encode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// A metadata key is missing or of the wrong kind.
    #[error(transparent)]
    File(#[from] sparkinfer_gguf::Error),
    /// The tokenizer metadata does not fit together, or is of a kind that is not supported.
    #[error("{file}: key '{key}': {problem}")]
    Metadata {
        /// The file, as the user named it.
        file: String,
        /// The whole metadata key.
        key: String,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// The text holds a byte for which the vocabulary has neither a token nor an unknown token.
    #[error("the text holds the byte 0x{byte:02X}, for which this vocabulary has no token")]
    Unencodable {
        /// The byte.
        byte: u8,
    },
}

/// Result of building or using a tokenizer.
pub type Result<T> = std::result::Result<T, TokenizerError>;

/// Text from a file in quotes, escaped and cut to a length that a message can bear.
pub(super) fn quoted(text: &str) -> String {
    let cut: String = text.chars().take(QUOTE_LIMIT).collect();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("'{}{dots}'", cut.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_short_and_printable() {
        assert_eq!(quoted("a\n"), "'a\\n'");
        let long = quoted(&"é".repeat(1000));
        assert_eq!(long.chars().count(), QUOTE_LIMIT + 3);
    }
}
