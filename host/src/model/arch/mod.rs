//! The architectures: a small file each, which fills in data from the parts in `parts.rs`.
//!
//! To add one: a file here with a `describe` function, a line in [`TABLE`], a test against real output.

mod gemma3;
mod llama;
mod parts;
mod qwen2;
mod qwen3;
mod qwen3moe;

use super::error::Result;
use super::params::Params;
use super::spec::ModelSpec;

/// Reads the description of a model of one architecture.
type Describe = fn(&Params) -> Result<ModelSpec>;

/// `general.architecture` and the function that reads such a file.
const TABLE: [(&str, Describe); 5] = [
    ("qwen3moe", qwen3moe::describe),
    ("qwen3", qwen3::describe),
    ("qwen2", qwen2::describe),
    ("llama", llama::describe),
    ("gemma3", gemma3::describe),
];

/// The names of all architectures that are supported.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

pub(super) fn find(architecture: &str) -> Option<Describe> {
    TABLE
        .iter()
        .find(|(name, _)| *name == architecture)
        .map(|(_, describe)| *describe)
}

/// The text for an architecture that is not in the table.
pub(super) fn unsupported(architecture: &str) -> String {
    let shown: String = architecture.escape_debug().take(64).collect();
    format!(
        "is '{shown}', which is not supported; supported are {}",
        architectures().collect::<Vec<_>>().join(", ")
    )
}
