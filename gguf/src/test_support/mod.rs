//! For tests, here and in other crates: files that no writer would make, and a mutator of files.

pub mod hostile;
pub mod mutate;
mod raw;

pub use raw::RawGguf;
