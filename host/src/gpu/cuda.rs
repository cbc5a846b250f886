//! An NVIDIA GPU as a backend.

use std::cell::RefCell;

use cuda_std::launch::{Launcher, PreparedLaunch};

use super::backend::{Backend, DeviceError, Fill, HostVisible, Memory, Result};
use crate::cuda::{Buffer, Event, Gpu, Graph, Pinned, download, upload};

/// Pieces of staging memory: one is filled while the others are copied.
const STAGING_PIECES: usize = 3;

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
        let gpu = Gpu::open(ordinal).map_err(DeviceError::new)?;
        Ok(Self { gpu, staging: RefCell::new(Staging::default()) })
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }
}

/// Page-locked pieces that copies start from, reused in turn.
#[derive(Default)]
struct Staging {
    pieces: Vec<Piece>,
    next: usize,
}

struct Piece {
    memory: Pinned<u8>,
    /// Behind the last copy from it.
    copied: Event,
}

impl Staging {
    /// A piece of at least `bytes` bytes that no copy reads any more.
    fn free_piece(&mut self, gpu: &Gpu, bytes: usize) -> crate::cuda::Result<&mut Piece> {
        let slot = self.next % STAGING_PIECES;
        self.next += 1;
        if slot == self.pieces.len() {
            let piece = Piece { memory: Pinned::zeroed(gpu.context(), bytes)?, copied: Event::new()? };
            self.pieces.push(piece);
        }
        let piece = &mut self.pieces[slot];
        piece.copied.synchronize()?;
        if piece.memory.len() < bytes {
            piece.memory = Pinned::zeroed(gpu.context(), bytes)?;
        }
        Ok(piece)
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

    fn memory(&self) -> Result<(u64, u64)> {
        let (free, total) = self.gpu.context().free_bytes().map_err(DeviceError::new)?;
        Ok((free as u64, total as u64))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        let buffer = Buffer::zeroed(self.gpu.stream(), bytes).map_err(DeviceError::new)?;
        Ok(Box::new(CudaMemory(buffer)))
    }

    fn host_visible(&self, words: usize) -> Result<Box<dyn HostVisible>> {
        Ok(Box::new(Pinned::<u64>::zeroed(self.gpu.context(), words).map_err(DeviceError::new)?))
    }

    fn upload(&self, address: u64, bytes: usize, fill: Fill<'_>) -> Result<()> {
        let mut staging = self.staging.borrow_mut();
        let piece = staging.free_piece(&self.gpu, bytes).map_err(DeviceError::new)?;
        fill(&mut piece.memory.as_mut_slice()[..bytes])?;
        upload(self.gpu.stream(), address, &piece.memory, bytes).map_err(DeviceError::new)?;
        piece.copied.record(self.gpu.stream()).map_err(DeviceError::new)
    }

    fn download(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        download(self.gpu.stream(), address, bytes).map_err(DeviceError::new)
    }

    fn run(&self, launches: &[PreparedLaunch]) -> Result<()> {
        launches.iter().try_for_each(|launch| self.gpu.launch(launch)).map_err(DeviceError::new)
    }

    fn record(&self, launches: &[PreparedLaunch]) -> Result<Graph> {
        let record = || launches.iter().try_for_each(|launch| self.gpu.launch(launch));
        Graph::capture(self.gpu.stream(), record).map_err(DeviceError::new)
    }

    fn replay(&self, recording: &Graph) -> Result<()> {
        recording.launch(self.gpu.stream()).map_err(DeviceError::new)
    }

    fn check(&self) -> Result<()> {
        self.gpu.stream().is_idle().map(|_| ()).map_err(DeviceError::new)
    }

    fn synchronize(&self) -> Result<()> {
        self.gpu.stream().synchronize().map_err(DeviceError::new)
    }
}
