//! What the GPU engine asks of a device: memory, launches, recorded plans.
//!
//! The engine is written against this trait alone, so that the same plans run on a CUDA device and in the emulator.

use std::fmt;

use cuda_std::launch::PreparedLaunch;

/// The result of everything a backend does.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// What went wrong on a device: one line, saying what and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

impl DeviceError {
    /// An error with the text of `cause`.
    pub fn new(cause: impl fmt::Display) -> Self {
        Self(cause.to_string())
    }
}

/// Device memory that is freed when dropped.
pub trait Memory: Send {
    /// Address of the first byte; a multiple of 256.
    fn address(&self) -> u64;
    /// Size in bytes.
    fn bytes(&self) -> usize;
}

/// Memory that the device writes and the host reads while the device runs.
pub trait HostVisible: Send {
    /// Address as the device sees it.
    fn address(&self) -> u64;
    /// The 8-byte word number `index`, as it is now.
    fn load(&self, index: usize) -> u64;
}

/// Fills staging memory of the given length; called by [`Backend::upload`].
pub type Fill<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<()>;

/// One device with one stream: everything happens in the order in which it was asked for.
pub trait Backend {
    /// A recorded list of launches that can be replayed as one.
    type Recording;

    /// Name of the device, for people.
    fn name(&self) -> String;

    /// Multiprocessors: how many blocks make a full wave.
    fn multiprocessors(&self) -> u32;

    /// Bytes of shared memory of a multiprocessor; 0: not known.
    fn multiprocessor_shared_bytes(&self) -> u32;

    /// Whether its kernels may be launched in thread block clusters.
    fn clusters(&self) -> bool;

    /// Free and total memory in bytes.
    ///
    /// # Errors
    /// The driver's.
    fn memory(&self) -> Result<(u64, u64)>;

    /// Allocates `bytes` bytes of zeros.
    ///
    /// # Errors
    /// Out of memory, saying how much was asked for and how much is free.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>>;

    /// Allocates `words` zeroed 8-byte words that the host can read at any time.
    ///
    /// # Errors
    /// Out of memory, or the driver's.
    fn host_visible(&self, words: usize) -> Result<Box<dyn HostVisible>>;

    /// Copies to the device, through staging memory that `fill` writes; may return before the copy has ended.
    ///
    /// # Errors
    /// `fill`'s, or the driver's.
    fn upload(&self, address: u64, bytes: usize, fill: Fill<'_>) -> Result<()>;

    /// Copies from the device, after everything before it.
    ///
    /// # Errors
    /// The driver's, also of earlier launches.
    fn download(&self, address: u64, bytes: &mut [u8]) -> Result<()>;

    /// Enqueues a copy of `bytes` bytes within the device's memory, between ranges that do not overlap.
    ///
    /// # Errors
    /// The driver's.
    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()>;

    /// Enqueues launches.
    ///
    /// # Errors
    /// A launch that is not allowed, or the driver's.
    fn run(&self, launches: &[PreparedLaunch]) -> Result<()>;

    /// Records launches for [`Backend::replay`], without running them.
    ///
    /// # Errors
    /// As [`Backend::run`].
    fn record(&self, launches: &[PreparedLaunch]) -> Result<Self::Recording>;

    /// Enqueues everything that was recorded.
    ///
    /// # Errors
    /// As [`Backend::run`].
    fn replay(&self, recording: &Self::Recording) -> Result<()>;

    /// Whether the device is still well, without waiting for it.
    ///
    /// # Errors
    /// The driver's, of anything that has ended since the last wait.
    fn check(&self) -> Result<()>;

    /// Waits for everything enqueued.
    ///
    /// # Errors
    /// The driver's, of anything since the last wait.
    fn synchronize(&self) -> Result<()>;

    /// Bytes a second of plain reads, measured now; none for a device without a speed of its own.
    ///
    /// # Errors
    /// Too little free memory, or the driver's.
    fn read_bandwidth(&self) -> Result<Option<f64>> {
        Ok(None)
    }

    /// Copies `bytes` to the device.
    ///
    /// # Errors
    /// As [`Backend::upload`].
    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.upload(address, bytes.len(), &mut |staging| {
            staging.copy_from_slice(bytes);
            Ok(())
        })
    }
}
