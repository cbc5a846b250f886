//! What runs a kernel under test: the emulator here, a GPU in the GPU test program.

use bytemuck::{AnyBitPattern, NoUninit};
use cuda_std::DevicePtr;
use cuda_std::launch::PreparedLaunch;

/// Memory and launches.
pub trait Machine {
    /// New memory with these bytes, aligned to at least 16.
    ///
    /// # Errors
    /// Whatever the machine reports, in words; so for the others.
    fn upload_bytes(&mut self, bytes: &[u8]) -> Result<DevicePtr<u8>, String>;

    /// New memory of `bytes` bytes that a kernel must write: poisoned, where the machine can tell.
    ///
    /// # Errors
    /// As above.
    fn output_bytes(&mut self, bytes: usize) -> Result<DevicePtr<u8>, String>;

    /// Whether it takes launches of thread block clusters.
    fn clusters(&self) -> bool;

    /// Runs a launch to its end.
    ///
    /// # Errors
    /// As above.
    fn run(&mut self, launch: &PreparedLaunch) -> Result<(), String>;

    /// The bytes of memory from [`upload_bytes`](Self::upload_bytes) or [`output_bytes`](Self::output_bytes). An error
    /// names bytes of an output that nothing wrote, where the machine can tell.
    ///
    /// # Errors
    /// As above.
    fn download_bytes(&mut self, from: DevicePtr<u8>, bytes: usize) -> Result<Vec<u8>, String>;
}

impl dyn Machine + '_ {
    /// New memory with these values.
    ///
    /// # Errors
    /// As [`Machine::upload_bytes`].
    pub fn upload<T: NoUninit>(&mut self, values: &[T]) -> Result<DevicePtr<T>, String> {
        Ok(self.upload_bytes(bytemuck::cast_slice(values))?.cast())
    }

    /// New memory of `n` values that a kernel must write.
    ///
    /// # Errors
    /// As [`Machine::output_bytes`].
    pub fn output<T>(&mut self, n: usize) -> Result<DevicePtr<T>, String> {
        Ok(self.output_bytes(n * size_of::<T>())?.cast())
    }

    /// The `n` values at `from`.
    ///
    /// # Errors
    /// As [`Machine::download_bytes`].
    pub fn download<T: AnyBitPattern>(&mut self, from: DevicePtr<T>, n: usize) -> Result<Vec<T>, String> {
        let bytes = self.download_bytes(from.cast(), n * size_of::<T>())?;
        Ok(bytes
            .chunks_exact(size_of::<T>())
            .map(bytemuck::pod_read_unaligned)
            .collect())
    }
}
