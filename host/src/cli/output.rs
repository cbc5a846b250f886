//! Writing to standard output when its reader may be gone.

use std::io::{self, ErrorKind};

/// Whether an error means that the reader of our output went away (`sparkinfer … | head`). That is no failure: the
/// reader has what it wanted.
pub fn is_closed(error: &anyhow::Error) -> bool {
    let causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.into_iter().any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn only_a_broken_pipe_is_quiet() {
        let failed = |kind: ErrorKind| Err::<(), _>(io::Error::from(kind)).context("cannot write").unwrap_err();
        assert!(is_closed(&failed(ErrorKind::BrokenPipe)));
        assert!(!is_closed(&failed(ErrorKind::StorageFull)));
    }
}
