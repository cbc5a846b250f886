//! What can go wrong with a chat template.

use std::error::Error as _;

/// A chat template that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The file's template is damaged.
    #[error(transparent)]
    File(#[from] sparkinfer_gguf::Error),
    /// The template is not valid Jinja.
    #[error("the chat template is not valid: {0}")]
    Syntax(String),
    /// The template was asked for something that it refuses, such as roles in the wrong order. The text is its own.
    #[error("the chat template refuses this conversation: {0}")]
    Refused(String),
    /// The template failed, or went over its budget.
    #[error("the chat template failed: {0}")]
    Failed(String),
}

/// Result of compiling or rendering a template.
pub type Result<T> = std::result::Result<T, ChatError>;

/// A template's own complaint (`raise_exception`).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

/// What is wrong with a template's source, and in which line.
pub(super) fn syntax(error: &minijinja::Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}

/// A failed run.
pub(super) fn render(error: &minijinja::Error) -> ChatError {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return ChatError::Refused(message.clone());
        }
        source = cause.source();
    }
    ChatError::Failed(format!("{}: {}", error.kind(), syntax(error)))
}
