//! A GPU as a machine for kernel cases.

use cuda_std::DevicePtr;
use cuda_std::launch::{Launcher, PreparedLaunch};
use sparkinfer::cuda::{Buffer, Gpu};
use sparkinfer_device::testing::Machine;

/// What outputs hold before a kernel writes them: as floats, NaN.
const POISON: u8 = 0xff;
/// Bytes on either side of each allocation that a kernel must leave alone.
const GUARD: usize = 256;
/// What they hold.
const CANARY: u8 = 0xc7;

/// Memory and launches on one GPU; the memory is freed when the machine goes.
pub struct GpuMachine<'a> {
    gpu: &'a Gpu,
    memory: Vec<Piece>,
}

/// One allocation: a guard, the data, a guard.
struct Piece {
    buffer: Buffer<u8>,
    bytes: usize,
}

impl Piece {
    fn data(&self) -> DevicePtr<u8> {
        self.buffer.ptr().add(GUARD)
    }
}

impl<'a> GpuMachine<'a> {
    /// A machine without memory yet.
    pub fn new(gpu: &'a Gpu) -> Self {
        Self {
            gpu,
            memory: Vec::new(),
        }
    }

    /// Whether anything was written outside the allocations.
    ///
    /// # Errors
    /// Where, in words; or the driver's.
    pub fn check_guards(&self) -> Result<(), String> {
        for piece in &self.memory {
            let all = piece.buffer.to_vec(self.gpu.stream()).map_err(words)?;
            let inside = GUARD..GUARD + piece.bytes;
            let broken = all
                .iter()
                .enumerate()
                .find(|(i, byte)| !inside.contains(i) && **byte != CANARY);
            if let Some((index, _)) = broken {
                let place = index as i64 - GUARD as i64;
                return Err(format!(
                    "byte {place} of an allocation of {} bytes was written",
                    piece.bytes
                ));
            }
        }
        Ok(())
    }

    fn allocate(&mut self, data: &[u8]) -> Result<DevicePtr<u8>, String> {
        let guard = [CANARY; GUARD];
        let buffer = Buffer::from_slice(self.gpu.stream(), &[&guard, data, &guard].concat()).map_err(words)?;
        let piece = Piece {
            buffer,
            bytes: data.len(),
        };
        let address = piece.data();
        self.memory.push(piece);
        Ok(address)
    }
}

impl Machine for GpuMachine<'_> {
    fn clusters(&self) -> bool {
        self.gpu.module().embedded().has_clusters()
    }

    fn upload_bytes(&mut self, bytes: &[u8]) -> Result<DevicePtr<u8>, String> {
        self.allocate(bytes)
    }

    fn output_bytes(&mut self, bytes: usize) -> Result<DevicePtr<u8>, String> {
        self.allocate(&vec![POISON; bytes])
    }

    fn run(&mut self, launch: &PreparedLaunch) -> Result<(), String> {
        self.gpu
            .launch(launch)
            .and_then(|()| self.gpu.stream().synchronize())
            .map_err(words)
    }

    fn download_bytes(&mut self, from: DevicePtr<u8>, bytes: usize) -> Result<Vec<u8>, String> {
        let mut data = vec![0; bytes];
        self.gpu.stream().download(from, &mut data).map_err(words)?;
        Ok(data)
    }
}

fn words(error: sparkinfer::cuda::Error) -> String {
    error.to_string()
}
