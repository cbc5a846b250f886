//! What can go wrong with a tokenizer.

/// A tokenizer that cannot be built, or a text that it cannot encode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// The file's tokenizer metadata is missing, damaged or of a kind that is not supported.
    #[error("{file}: {key}: {problem}")]
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
