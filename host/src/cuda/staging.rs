//! Copies to the device that overlap with making the data.

use super::error::from_cust;
use super::{Context, Result, Stream};
use cuda_link::api;
use cuda_std::DevicePtr;
use cust::event::{Event, EventFlags};
use std::ffi::c_void;
use std::sync::Arc;

/// Two pieces of page-locked memory that take turns: while the device copies one, the caller fills the other. They grow
/// to the largest piece asked for.
#[derive(Debug)]
pub struct Staging {
    slots: [Slot; 2],
    next: usize,
}

impl Staging {
    /// Staging without memory yet.
    ///
    /// # Errors
    /// A failed driver call.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        Ok(Self {
            slots: [Slot::new(context)?, Slot::new(context)?],
            next: 0,
        })
    }

    /// Has `fill` write `bytes` bytes and puts their copy to device memory on `stream`. Waits only until the piece
    /// before the last has been copied.
    ///
    /// # Errors
    /// `fill`'s, out of memory, or a failed driver call.
    pub fn upload<E: From<super::Error>>(
        &mut self,
        stream: &Stream,
        to: DevicePtr<u8>,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let slot = &mut self.slots[self.next];
        self.next ^= 1;
        fill(slot.take(bytes)?)?;
        Ok(slot.send(stream, to, bytes)?)
    }
}

/// One piece, and the event that its last copy ends with.
#[derive(Debug)]
struct Slot {
    memory: *mut u8,
    bytes: usize,
    copied: Event,
    _context: Arc<Context>,
}

impl Slot {
    fn new(context: &Arc<Context>) -> Result<Self> {
        let copied = Event::new(EventFlags::DISABLE_TIMING).map_err(from_cust("cuEventCreate"))?;
        Ok(Self {
            memory: std::ptr::null_mut(),
            bytes: 0,
            copied,
            _context: Arc::clone(context),
        })
    }

    /// `bytes` bytes that no copy is reading any more.
    fn take(&mut self, bytes: usize) -> Result<&mut [u8]> {
        self.copied.synchronize().map_err(from_cust("cuEventSynchronize"))?;
        if bytes > self.bytes {
            self.grow(bytes)?;
        }
        if bytes == 0 {
            return Ok(&mut []);
        }
        // SAFETY: at least that many initialised bytes are there, and no copy reads them.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory, bytes) })
    }

    fn grow(&mut self, bytes: usize) -> Result<()> {
        self.free();
        let mut memory: *mut c_void = std::ptr::null_mut();
        // SAFETY: the pointer is to a live handle.
        unsafe { api::cuMemHostAlloc(&mut memory, bytes, 0) }.check("cuMemHostAlloc")?;
        // SAFETY: the driver gave that many bytes.
        unsafe { memory.cast::<u8>().write_bytes(0, bytes) };
        (self.memory, self.bytes) = (memory.cast(), bytes);
        Ok(())
    }

    /// Puts the copy on the stream, and the event behind it.
    fn send(&self, stream: &Stream, to: DevicePtr<u8>, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let from = self.memory.cast_const().cast();
        // SAFETY: the memory stays until the event behind the copy has passed: `take` and `Drop` wait for it.
        let status = unsafe { api::cuMemcpyHtoDAsync_v2(to.as_raw(), from, bytes, stream.raw()) };
        status.check("cuMemcpyHtoDAsync")?;
        self.copied.record(stream.cust()).map_err(from_cust("cuEventRecord"))
    }

    /// Gives the memory back; no copy may be reading it.
    fn free(&mut self) {
        if !self.memory.is_null() {
            // SAFETY: the driver's allocation, freed once.
            let _ = unsafe { api::cuMemFreeHost(self.memory.cast()) };
            (self.memory, self.bytes) = (std::ptr::null_mut(), 0);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // A failure means that the context is lost, and with it the copy.
        let _ = self.copied.synchronize();
        self.free();
    }
}
