//! Several sequences in one cache: their pages, and what is shared.

use super::GpuEngine;
use crate::engine::{self, EngineError, Sequence};
use crate::gpu::backend::{Backend, DeviceError};
use crate::gpu::pages::PageCopy;

impl<B: Backend> GpuEngine<B> {
    /// Pages that no sequence holds.
    pub fn free_pages(&mut self) -> usize {
        self.free_abandoned();
        self.pool.free_pages()
    }

    /// Makes room for `tokens` tokens in all, a shared page that they go to the sequence's own, and tells the device
    /// the pages.
    pub(super) fn reserve(&mut self, tokens: usize) -> Result<(), DeviceError> {
        self.free_abandoned();
        let copy = self
            .sequence
            .reserve(&mut self.pool, tokens)
            .map_err(DeviceError::new)?;
        if let Some(copy) = copy {
            self.copy_page(copy)?;
        }
        let pages = self.sequence.pages();
        if !self.uploaded.starts_with(pages) {
            self.backend
                .write(self.buffers.step.table.as_raw(), bytemuck::cast_slice(pages))?;
            self.uploaded = pages.to_vec();
        }
        Ok(())
    }

    pub(super) fn free_abandoned(&mut self) {
        for mut sequence in self.waiting.abandoned() {
            sequence.truncate(&mut self.pool, 0);
        }
    }

    pub(super) fn copy_page(&self, PageCopy { from, to }: PageCopy) -> Result<(), DeviceError> {
        let bytes = self.buffers.page_bytes as usize;
        self.buffers.pools().try_for_each(|pool| {
            let page = |page: u32| pool + u64::from(page) * bytes as u64;
            self.backend.copy(page(from), page(to), bytes)
        })
    }

    pub(super) fn fork_current(&mut self, len: usize) -> Sequence {
        self.free_abandoned();
        let fork = self.sequence.fork(&mut self.pool, len);
        self.waiting.keep(fork)
    }

    pub(super) fn switch_to(&mut self, to: &Sequence) -> engine::Result<Sequence> {
        let foreign = || EngineError::Invalid("the sequence is another engine's".into());
        let next = self.waiting.take(to).ok_or_else(foreign)?;
        let last = std::mem::replace(&mut self.sequence, next);
        Ok(self.waiting.keep(last))
    }
}
