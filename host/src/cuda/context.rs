//! One GPU in use, and the stream that work is put on.

use super::error::from_cust;
use super::{DeviceInfo, Error, Result};
use cuda_link::api;
use cuda_std::DevicePtr;
use cust::stream::StreamFlags;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The primary context of one GPU, current on the thread that made it, and the account of the memory taken from it.
#[derive(Debug)]
pub struct Context {
    device: DeviceInfo,
    handle: api::Device,
    allocated: AtomicUsize,
}

impl Context {
    /// Takes the GPU and makes its context current on this thread.
    ///
    /// # Errors
    /// The GPU is busy, out of memory, or the driver refuses otherwise.
    pub fn new(device: DeviceInfo) -> Result<Arc<Self>> {
        let mut handle = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { api::cuDeviceGet(&mut handle, device.ordinal as i32) }.check("cuDeviceGet")?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the pointer is to a live handle; `Drop` gives the context back.
        unsafe { api::cuDevicePrimaryCtxRetain(&mut context, handle) }.check("cuDevicePrimaryCtxRetain")?;
        let this = Arc::new(Self {
            device,
            handle,
            allocated: AtomicUsize::new(0),
        });
        // SAFETY: the context was just retained.
        unsafe { api::cuCtxSetCurrent(context) }.check("cuCtxSetCurrent")?;
        Ok(this)
    }

    /// The GPU.
    pub fn device(&self) -> &DeviceInfo {
        &self.device
    }

    /// Bytes of device memory that buffers of this context hold now.
    pub fn allocated_bytes(&self) -> usize {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Bytes of device memory that are free now, and all of them. Other processes take part.
    ///
    /// # Errors
    /// A failed driver call.
    pub fn free_bytes(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are to live integers.
        unsafe { api::cuMemGetInfo_v2(&mut free, &mut total) }.check("cuMemGetInfo")?;
        Ok((free, total))
    }

    /// Takes `bytes` of device memory and books them.
    pub(super) fn allocate(&self, bytes: usize) -> Result<api::DeviceAddress> {
        let mut address = 0;
        // SAFETY: the pointer is to a live integer.
        match unsafe { api::cuMemAlloc_v2(&mut address, bytes) } {
            cuda_link::Status::OUT_OF_MEMORY => {
                let (free, total) = self.free_bytes().unwrap_or((0, self.device.memory_bytes));
                Err(Error::OutOfMemory {
                    wanted: bytes,
                    free,
                    total,
                })
            }
            status => {
                status.check("cuMemAlloc")?;
                self.allocated.fetch_add(bytes, Ordering::Relaxed);
                Ok(address)
            }
        }
    }

    /// Gives back what [`Self::allocate`] took. A failure means that the context is already lost; there is nothing
    /// left to free then.
    pub(super) fn free(&self, address: api::DeviceAddress, bytes: usize) {
        // SAFETY: the address came from `allocate` and its buffer is being dropped.
        let _ = unsafe { api::cuMemFree_v2(address) };
        self.allocated.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained in `new`; whoever uses the context holds it, so nothing does any more.
        let _ = unsafe { api::cuDevicePrimaryCtxRelease_v2(self.handle) };
    }
}

/// A queue of work for the GPU, done in order.
#[derive(Debug)]
pub struct Stream {
    inner: cust::stream::Stream,
    context: Arc<Context>,
}

impl Stream {
    /// An empty queue.
    ///
    /// # Errors
    /// A failed driver call.
    pub fn new(context: &Arc<Context>) -> Result<Self> {
        let inner = cust::stream::Stream::new(StreamFlags::NON_BLOCKING, None).map_err(from_cust("cuStreamCreate"))?;
        Ok(Self {
            inner,
            context: Arc::clone(context),
        })
    }

    /// The context that the queue belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits until everything in the queue is done; reports what failed on the way.
    ///
    /// # Errors
    /// Whatever the work in the queue ran into.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the handle is this live stream's.
        Ok(unsafe { api::cuStreamSynchronize(self.raw()) }.check("cuStreamSynchronize")?)
    }

    /// Whether everything in the queue is done, without waiting; reports what failed so far.
    ///
    /// # Errors
    /// Whatever the work in the queue ran into.
    pub fn is_idle(&self) -> Result<bool> {
        // SAFETY: the handle is this live stream's.
        match unsafe { api::cuStreamQuery(self.raw()) } {
            cuda_link::Status::NOT_READY => Ok(false),
            status => Ok(status.check("cuStreamQuery").map(|()| true)?),
        }
    }

    /// Copies `data` to device memory. Returns when it is done, after the stream's earlier work.
    ///
    /// # Errors
    /// A failed driver call; the driver refuses addresses that are not its own.
    pub fn upload(&self, to: DevicePtr<u8>, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let from = data.as_ptr().cast();
        // SAFETY: `data` is borrowed until the copy is done.
        let status = unsafe { api::cuMemcpyHtoDAsync_v2(to.as_raw(), from, data.len(), self.raw()) };
        status.check("cuMemcpyHtoDAsync")?;
        self.synchronize()
    }

    /// Copies from device memory to `data`. Returns when it is done, after the stream's earlier work.
    ///
    /// # Errors
    /// A failed driver call; the driver refuses addresses that are not its own.
    pub fn download(&self, from: DevicePtr<u8>, data: &mut [u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let to = data.as_mut_ptr().cast();
        // SAFETY: `data` is borrowed until the copy is done.
        let status = unsafe { api::cuMemcpyDtoHAsync_v2(to, from.as_raw(), data.len(), self.raw()) };
        status.check("cuMemcpyDtoHAsync")?;
        self.synchronize()
    }

    /// Copies `bytes` bytes within device memory when the stream comes to it.
    ///
    /// # Errors
    /// A failed driver call; the driver refuses addresses that are not its own.
    pub fn copy(&self, from: DevicePtr<u8>, to: DevicePtr<u8>, bytes: usize) -> Result<()> {
        // SAFETY: the driver checks the ranges; the copy is in order with the stream's launches.
        let status = unsafe { api::cuMemcpyDtoDAsync_v2(to.as_raw(), from.as_raw(), bytes, self.raw()) };
        Ok(status.check("cuMemcpyDtoDAsync")?)
    }

    /// The driver's handle.
    pub fn raw(&self) -> api::Stream {
        self.inner.as_inner().cast()
    }

    /// The stream as `cust` knows it.
    pub(super) fn cust(&self) -> &cust::stream::Stream {
        &self.inner
    }
}
