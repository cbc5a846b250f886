//! The emulator as a backend: every launch runs on the host, at once, with all of its checks.

use cuda_std::emu::{self, Emulator};
use cuda_std::launch::{Launcher, PreparedLaunch};

use super::backend::{Backend, DeviceError, Fill, HostVisible, Memory, Result};

/// Bytes of shared memory of each of its multiprocessors: as many as large GPUs have.
const SHARED_BYTES: u32 = 228 << 10;

/// Multiprocessors of the emulated device: few, since every block costs host time.
const MULTIPROCESSORS: u32 = 4;

/// The emulated device.
#[derive(Debug, Clone)]
pub struct Emulated {
    emulator: Emulator,
    multiprocessors: u32,
}

impl Default for Emulated {
    fn default() -> Self {
        Self {
            emulator: Emulator::default(),
            multiprocessors: MULTIPROCESSORS,
        }
    }
}

impl Emulated {
    /// A device that says it has so many multiprocessors.
    pub fn of_size(multiprocessors: u32) -> Self {
        Self {
            multiprocessors,
            ..Self::default()
        }
    }

    /// A device that runs the threads of a launch in the order that `seed` says.
    pub fn with_seed(seed: u64) -> Self {
        Self {
            emulator: Emulator::with_seed(seed),
            ..Self::default()
        }
    }
}

struct EmulatedMemory(emu::Buffer<u8>);

impl Memory for EmulatedMemory {
    fn address(&self) -> u64 {
        self.0.ptr().as_raw()
    }
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl HostVisible for EmulatedMemory {
    fn address(&self) -> u64 {
        self.0.ptr().as_raw()
    }
    fn load(&self, index: usize) -> u64 {
        bytemuck::pod_read_unaligned(&self.0.as_slice()[8 * index..8 * index + 8])
    }
}

impl Backend for Emulated {
    type Recording = Vec<PreparedLaunch>;

    fn name(&self) -> String {
        "emulator".into()
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn multiprocessor_shared_bytes(&self) -> u32 {
        SHARED_BYTES
    }

    fn clusters(&self) -> bool {
        true
    }

    fn memory(&self) -> Result<(u64, u64)> {
        Ok((u64::MAX, u64::MAX))
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(EmulatedMemory(emu::Buffer::zeroed(
            bytes.next_multiple_of(256),
        ))))
    }

    fn host_visible(&self, words: usize) -> Result<Box<dyn HostVisible>> {
        Ok(Box::new(EmulatedMemory(emu::Buffer::zeroed(8 * words))))
    }

    fn upload(&self, address: u64, bytes: usize, fill: Fill<'_>) -> Result<()> {
        let mut staging = vec![0; bytes];
        fill(&mut staging)?;
        emu::write_bytes(address, &staging).map_err(DeviceError::new)
    }

    fn download(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        emu::read_bytes(address, bytes).map_err(DeviceError::new)
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        let mut data = vec![0; bytes];
        self.download(from, &mut data)?;
        self.write(to, &data)
    }

    fn run(&self, launches: &[PreparedLaunch]) -> Result<()> {
        launches
            .iter()
            .try_for_each(|launch| self.emulator.launch(launch))
            .map_err(DeviceError::new)
    }

    fn record(&self, launches: &[PreparedLaunch]) -> Result<Self::Recording> {
        launches
            .iter()
            .try_for_each(PreparedLaunch::check)
            .map_err(DeviceError::new)?;
        Ok(launches.to_vec())
    }

    fn replay(&self, recording: &Self::Recording) -> Result<()> {
        self.run(recording)
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
