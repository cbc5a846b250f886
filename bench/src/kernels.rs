//! Where the kernels come from.

use anyhow::{Context as _, Result};
use sparkinfer::cuda::Gpu;
use std::path::Path;

/// The first GPU, with the program's own kernels or those of a PTX file.
///
/// # Errors
/// No GPU that the kernels run on, or a file that cannot be read or compiled.
pub fn open(ptx: Option<&Path>) -> Result<Gpu> {
    let Some(path) = ptx else {
        return Ok(Gpu::open(None)?);
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(Gpu::open_with(None, &text)?)
}
