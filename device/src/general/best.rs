//! The end of the logits: their cap, and each block's best token.
//!
//! **Computes** `logits[i] = c·tanh(logits[i] / c)` in place (not at all for c = 0) and `best[block]`, the highest of the
//! block's logits and its token; the lowest token among equals, NaN never. [`advance`](crate::decode::advance) finds the
//! best of the blocks.
//!
//! **Moves** 4 bytes a logit. **Shape of work**: blocks of 256 threads stride over the logits.
//!
//! **Launch**: [`launch`]; PDL allowed.

use crate::decode::head::{Best, capped};
use cuda_std::prelude::*;

/// Cap of the logits and each block's best token.
///
/// # Safety
/// The launch is one of [`launch`]: there are n logits, `best` has a place for each block.
#[kernel(pdl)]
pub unsafe fn general_best(logits: *mut f32, best: *mut Best, n: u32, softcap: f32) {
    pdl::launch_dependents();
    pdl::wait();
    let mut mine = Best::NONE;
    let mut token = thread::index_1d();
    while token < n {
        // SAFETY: token < n, and this thread alone has it.
        unsafe {
            let at = logits.add(token as usize);
            let logit = capped(global::load(at), softcap);
            if softcap != 0.0 {
                global::store(at, logit);
            }
            mine = mine.or(Best { logit, token });
        }
        token += thread::grid_size_1d();
    }
    let mine = mine.of_block();
    if thread::thread_idx_x() == 0 {
        // SAFETY: a place for each block.
        unsafe { mine.store(best.add(thread::block_idx_x() as usize)) };
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::general_best;
    use crate::decode::head::Best;
    use crate::shape::{ShapeError, count};
    use cuda_std::DevicePtr;
    use cuda_std::launch::{LaunchConfig, PreparedLaunch};

    const THREADS: u32 = 256;

    /// The launch over `n` logits on `blocks` blocks, each of which leaves a candidate in `best`.
    ///
    /// # Errors
    /// No logits or no blocks.
    pub fn launch(
        logits: DevicePtr<f32>,
        best: DevicePtr<Best>,
        n: usize,
        softcap: f32,
        blocks: u32,
    ) -> Result<PreparedLaunch, ShapeError> {
        let n = count("general_best", "logits", n)?;
        let blocks = count("general_best", "blocks", blocks as usize)?;
        let config = LaunchConfig::new(blocks, THREADS).shared(Best::BLOCK_BYTES).pdl(true);
        Ok(general_best::prepare(config, logits, best, n, softcap))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::launch;
