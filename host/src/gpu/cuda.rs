//! An NVIDIA GPU as a backend.

use std::cell::RefCell;

use cuda_std::DevicePtr;
use cuda_std::launch::{Launcher, PreparedLaunch};

use super::backend::{Backend, DeviceError, Fill, HostVisible, Memory, Result};
use crate::cuda::{Buffer, Gpu, Graph, Pinned, Staging, bandwidth};

/// A GPU, ready to run the embedded kernels.
pub struct CudaDevice {
    gpu: Gpu,
    staging: RefCell<Staging>,
}

impl CudaDevice {
    /// Opens GPU number `ordinal`, or the first usable one.
    ///
    /// # Errors
    /// No driver, no usable GPU, or no kernels in this program, in one line.
    pub fn open(ordinal: Option<u32>) -> Result<Self> {
        Self::new(Gpu::open(ordinal)?)
    }

    /// A GPU that is open, with whatever kernels it has.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(gpu: Gpu) -> Result<Self> {
        let staging = RefCell::new(Staging::new(gpu.context())?);
        Ok(Self { gpu, staging })
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }
}

impl From<crate::cuda::Error> for DeviceError {
    fn from(error: crate::cuda::Error) -> Self {
        Self::new(error)
    }
}

struct CudaMemory(Buffer<u8>);

impl Memory for CudaMemory {
    fn address(&self) -> u64 {
        self.0.ptr().as_raw()
    }
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl HostVisible for Pinned<u64> {
    fn address(&self) -> u64 {
        self.ptr().as_raw()
    }
    fn load(&self, index: usize) -> u64 {
        Pinned::load(self, index)
    }
}

impl Backend for CudaDevice {
    type Recording = Graph;

    fn name(&self) -> String {
        self.gpu.context().device().name.clone()
    }

    fn multiprocessors(&self) -> u32 {
        self.gpu.context().device().multiprocessors
    }

    fn multiprocessor_shared_bytes(&self) -> u32 {
        self.gpu.context().device().multiprocessor_shared_bytes
    }

    fn clusters(&self) -> bool {
        self.gpu.module().embedded().has_clusters()
    }

    fn memory(&self) -> Result<(u64, u64)> {
        let (free, total) = self.gpu.context().free_bytes()?;
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(CudaMemory(Buffer::zeroed(self.gpu.stream(), bytes)?)))
    }

    fn host_visible(&self, words: usize) -> Result<Box<dyn HostVisible>> {
        Ok(Box::new(Pinned::<u64>::zeroed(self.gpu.context(), words)?))
    }

    fn upload(&self, address: u64, bytes: usize, fill: Fill<'_>) -> Result<()> {
        self.staging
            .borrow_mut()
            .upload(self.gpu.stream(), DevicePtr::from_raw(address), bytes, fill)
    }

    fn download(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(self.gpu.stream().download(DevicePtr::from_raw(address), bytes)?)
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        let (from, to) = (DevicePtr::from_raw(from), DevicePtr::from_raw(to));
        Ok(self.gpu.stream().copy(from, to, bytes)?)
    }

    fn run(&self, launches: &[PreparedLaunch]) -> Result<()> {
        Ok(launches.iter().try_for_each(|launch| self.gpu.launch(launch))?)
    }

    fn record(&self, launches: &[PreparedLaunch]) -> Result<Graph> {
        let record = || launches.iter().try_for_each(|launch| self.gpu.launch(launch));
        Ok(Graph::capture(self.gpu.stream(), record)?)
    }

    fn replay(&self, recording: &Graph) -> Result<()> {
        Ok(recording.launch(self.gpu.stream())?)
    }

    fn read_bandwidth(&self) -> Result<Option<f64>> {
        Ok(Some(bandwidth::measure(&self.gpu)?))
    }

    fn check(&self) -> Result<()> {
        Ok(self.gpu.stream().is_idle().map(|_| ())?)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(self.gpu.stream().synchronize()?)
    }
}
