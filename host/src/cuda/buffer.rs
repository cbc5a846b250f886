//! Memory: on the device, and page-locked on the host.

use super::{Context, Error, Result, Stream};
use bytemuck::Pod;
use cuda_link::api;
use cuda_std::DevicePtr;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

/// `len` elements of device memory, freed on drop. An empty buffer takes none and has the null address.
#[derive(Debug)]
pub struct Buffer<T: Pod> {
    address: api::DeviceAddress,
    len: usize,
    context: Arc<Context>,
    element: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// Memory with whatever it held before.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or a failed driver call.
    pub fn uninitialised(context: &Arc<Context>, len: usize) -> Result<Self> {
        let bytes = len * size_of::<T>();
        let address = if bytes == 0 { 0 } else { context.allocate(bytes)? };
        Ok(Self {
            address,
            len,
            context: Arc::clone(context),
            element: PhantomData,
        })
    }

    /// Memory of zeros, once `stream` has come to it.
    ///
    /// # Errors
    /// As [`Self::uninitialised`].
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self> {
        let buffer = Self::uninitialised(stream.context(), len)?;
        buffer.fill_bytes(stream, 0)?;
        Ok(buffer)
    }

    /// A copy of `data`. Returns when it is made.
    ///
    /// # Errors
    /// As [`Self::uninitialised`].
    pub fn from_slice(stream: &Stream, data: &[T]) -> Result<Self> {
        let mut buffer = Self::uninitialised(stream.context(), data.len())?;
        buffer.write(stream, 0, data)?;
        Ok(buffer)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Its address, for a kernel's argument. The buffer must outlive every launch that gets it.
    pub fn ptr(&self) -> DevicePtr<T> {
        DevicePtr::from_raw(self.address)
    }

    /// Sets every byte to `value` when `stream` comes to it.
    ///
    /// # Errors
    /// A failed driver call.
    pub fn fill_bytes(&self, stream: &Stream, value: u8) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        // SAFETY: the range is this buffer's.
        let status = unsafe { api::cuMemsetD8Async(self.address, value, self.bytes(), stream.raw()) };
        Ok(status.check("cuMemsetD8Async")?)
    }

    /// Copies `data` to the elements from `start` on. Returns when it is done, after the stream's earlier work.
    ///
    /// # Errors
    /// [`Error::Length`] where it does not fit, or a failed driver call.
    pub fn write(&mut self, stream: &Stream, start: usize, data: &[T]) -> Result<()> {
        let to = self.range(start, data.len())?;
        stream.upload(DevicePtr::from_raw(to), bytemuck::cast_slice(data))
    }

    /// Copies the elements from `start` on to `data`. Returns when it is done, after the stream's earlier work.
    ///
    /// # Errors
    /// [`Error::Length`] where there are not as many, or a failed driver call.
    pub fn read(&self, stream: &Stream, start: usize, data: &mut [T]) -> Result<()> {
        let from = self.range(start, data.len())?;
        stream.download(DevicePtr::from_raw(from), bytemuck::cast_slice_mut(data))
    }

    /// All elements, after the stream's earlier work.
    ///
    /// # Errors
    /// A failed driver call.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        let mut data = vec![T::zeroed(); self.len];
        self.read(stream, 0, &mut data)?;
        Ok(data)
    }

    /// Copies all of `from`, of the same length, when `stream` comes to it.
    ///
    /// # Errors
    /// [`Error::Length`], or a failed driver call.
    pub fn copy_from(&mut self, stream: &Stream, from: &Self) -> Result<()> {
        if self.len != from.len {
            return Err(Error::Length {
                from: from.len,
                to: self.len,
            });
        }
        if self.is_empty() {
            return Ok(());
        }
        // SAFETY: both ranges are whole buffers of that size.
        let status = unsafe { api::cuMemcpyDtoDAsync_v2(self.address, from.address, self.bytes(), stream.raw()) };
        Ok(status.check("cuMemcpyDtoDAsync")?)
    }

    /// The address of element `start`, if `count` elements from there are inside.
    fn range(&self, start: usize, count: usize) -> Result<api::DeviceAddress> {
        let room = self.len.checked_sub(start);
        if room.is_none_or(|room| room < count) {
            return Err(Error::Length {
                from: count,
                to: room.unwrap_or(0),
            });
        }
        Ok(self.address + (start * size_of::<T>()) as u64)
    }
}

impl<T: Pod> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.address != 0 {
            self.context.free(self.address, self.bytes());
        }
    }
}

/// Page-locked host memory that the device reads and writes in place, for what a running graph tells the host.
#[derive(Debug)]
pub struct Pinned<T: Pod> {
    host: *mut T,
    address: api::DeviceAddress,
    len: usize,
    _context: Arc<Context>,
}

// SAFETY: it owns its allocation, which belongs to the process and no thread.
unsafe impl<T: Pod> Send for Pinned<T> {}

impl<T: Pod> Pinned<T> {
    /// `len` zeros.
    ///
    /// # Errors
    /// Out of memory, or a failed driver call.
    pub fn zeroed(context: &Arc<Context>, len: usize) -> Result<Self> {
        const PORTABLE_AND_MAPPED: u32 = 3;
        let bytes = (len * size_of::<T>()).max(1);
        let mut host: *mut c_void = std::ptr::null_mut();
        // SAFETY: the pointer is to a live handle.
        unsafe { api::cuMemHostAlloc(&mut host, bytes, PORTABLE_AND_MAPPED) }.check("cuMemHostAlloc")?;
        let mut this = Self {
            host: host.cast(),
            address: 0,
            len,
            _context: Arc::clone(context),
        };
        // SAFETY: the driver gave that many bytes.
        unsafe { host.cast::<u8>().write_bytes(0, bytes) };
        // SAFETY: the memory was allocated as mapped.
        let status = unsafe { api::cuMemHostGetDevicePointer_v2(&mut this.address, host, 0) };
        status.check("cuMemHostGetDevicePointer")?;
        Ok(this)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its address on the device.
    pub fn ptr(&self) -> DevicePtr<T> {
        DevicePtr::from_raw(self.address)
    }

    /// Element `index` as the device has last written it.
    ///
    /// # Panics
    /// Where `index` is not below [`Self::len`].
    pub fn load(&self, index: usize) -> T {
        assert!(index < self.len, "element {index} of {}", self.len);
        // SAFETY: inside the allocation, aligned (pages), and any bytes are a value of `T`. Volatile, since the
        // device writes it behind the compiler's back.
        unsafe { self.host.add(index).read_volatile() }
    }

    /// Writes element `index` for the device to see.
    ///
    /// # Panics
    /// Where `index` is not below [`Self::len`].
    pub fn store(&mut self, index: usize, value: T) {
        assert!(index < self.len, "element {index} of {}", self.len);
        // SAFETY: inside the allocation and aligned (pages).
        unsafe { self.host.add(index).write_volatile(value) };
    }
}

impl<T: Pod> Drop for Pinned<T> {
    fn drop(&mut self) {
        // SAFETY: the driver's allocation, freed once.
        let _ = unsafe { api::cuMemFreeHost(self.host.cast()) };
    }
}
