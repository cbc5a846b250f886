//! What a model needs of a device's memory, and what to do where there is too little.

use super::backend::{Backend, DeviceError};
use super::buffers::pages_for;
use super::pages::PAGE_TOKENS;
use super::path::{GpuOptions, Layout};
use crate::model::ModelSpec;

/// What a model needs on a device, known before anything is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of the key/value cache.
    pub cache: u64,
    /// Bytes of all other buffers.
    pub scratch: u64,
}

impl Needs {
    /// All bytes.
    pub fn total(&self) -> u64 {
        self.weights + self.cache + self.scratch
    }

    /// The tokens that `free` bytes have room for, where this is what `context` tokens need: whole pages.
    pub fn fitting(&self, free: u64, context: usize) -> usize {
        let page = (self.cache / pages_for(context).max(1) as u64).max(1);
        let pages = free.saturating_sub(self.weights + self.scratch) / page;
        usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(PAGE_TOKENS)
    }
}

/// What the model of `spec` needs on a device of `multiprocessors`.
///
/// # Errors
/// A model or a type of cache that the GPU's kernels do not take, saying what of it.
pub fn needs(spec: &ModelSpec, options: &GpuOptions, multiprocessors: u32) -> Result<Needs, DeviceError> {
    Ok(Layout::new(spec, options, multiprocessors)?.needs())
}

/// Refuses a model that does not fit, saying what is missing and what would fit.
pub(super) fn check<B: Backend>(
    backend: &B,
    needs: &Needs,
    context: usize,
    spec: &ModelSpec,
) -> Result<(), DeviceError> {
    let (free, total) = backend.memory()?;
    if needs.total() <= free {
        return Ok(());
    }
    Err(DeviceError(format!(
        "{}: {} MiB are needed ({} weights, {} cache for {context} tokens, {} buffers), but of {} MiB {} are free, {} \
         too few; {}",
        backend.name(),
        needs.total() >> 20,
        needs.weights >> 20,
        needs.cache >> 20,
        needs.scratch >> 20,
        total >> 20,
        free >> 20,
        ((needs.total() - free) >> 20) + 1,
        advice(needs.fitting(free, context).min(spec.context_length)),
    )))
}

fn advice(fitting: usize) -> String {
    if fitting >= PAGE_TOKENS {
        format!("--ctx {fitting} would fit")
    } else {
        "the weights alone do not fit: use a smaller quantisation, another GPU, or --device cpu".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const NEEDS: Needs = Needs {
        weights: 100 * MIB,
        cache: 64 * MIB,
        scratch: 10 * MIB,
    };

    #[test]
    fn what_fits_is_whole_pages() {
        // 4,096 tokens are 64 pages of a mebibyte.
        assert_eq!(NEEDS.fitting(174 * MIB, 4096), 4096);
        assert_eq!(NEEDS.fitting(142 * MIB + 5, 4096), 2048);
        assert_eq!(NEEDS.fitting(110 * MIB, 4096), 0);
        assert_eq!(NEEDS.fitting(0, 4096), 0);
    }

    #[test]
    fn advice_is_something_that_fits() {
        assert_eq!(advice(2048), "--ctx 2048 would fit");
        assert!(advice(0).starts_with("the weights alone do not fit"));
    }
}
