//! What can be wrong with a model that is a sound GGUF file: the reader's error, which names file and
//! key or tensor, with texts made here.

use std::fmt;

/// The result of everything in `model`.
pub(super) type Result<T> = std::result::Result<T, sparkinfer_gguf::Error>;

/// Dimensions as messages show them: the contiguous one first, trailing ones left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape(Vec<u64>);

impl Shape {
    pub(super) fn new(dims: &[u64]) -> Self {
        let len = dims.iter().rposition(|&dim| dim != 1).map_or(1, |last| last + 1);
        Shape(dims[..len.min(dims.len())].to_vec())
    }

    pub(super) fn of(dims: &[usize]) -> Self {
        Self::new(&dims.iter().map(|&dim| dim as u64).collect::<Vec<_>>())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(u64::to_string).collect();
        write!(f, "{{{}}}", dims.join(", "))
    }
}
