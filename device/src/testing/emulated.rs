//! The emulator as a machine.

use super::Machine;
use cuda_std::DevicePtr;
use cuda_std::emu::{Buffer, Emulator};
use cuda_std::launch::{Launcher, PreparedLaunch};

/// Memory between guard pages, launches in the emulator.
pub struct Emulated {
    emulator: Emulator,
    inputs: Vec<Buffer<u8>>,
    // As words: what was not written is found word by word.
    outputs: Vec<Buffer<u32>>,
}

impl Emulated {
    /// An empty machine whose blocks, warps and lanes run in the order of `seed` (0: the natural one).
    pub fn new(seed: u64) -> Self {
        Self {
            emulator: Emulator::with_seed(seed),
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }
}

impl Machine for Emulated {
    fn clusters(&self) -> bool {
        true
    }

    fn upload_bytes(&mut self, bytes: &[u8]) -> Result<DevicePtr<u8>, String> {
        self.inputs.push(Buffer::from_slice(bytes));
        Ok(self.inputs[self.inputs.len() - 1].ptr())
    }

    fn output_bytes(&mut self, bytes: usize) -> Result<DevicePtr<u8>, String> {
        self.outputs.push(Buffer::poisoned(bytes.div_ceil(4)));
        Ok(self.outputs[self.outputs.len() - 1].ptr().cast())
    }

    fn run(&mut self, launch: &PreparedLaunch) -> Result<(), String> {
        self.emulator.launch(launch).map_err(|fault| fault.to_string())
    }

    fn download_bytes(&mut self, from: DevicePtr<u8>, bytes: usize) -> Result<Vec<u8>, String> {
        let input = self
            .inputs
            .iter()
            .find(|buffer| buffer.ptr() == from)
            .map(Buffer::as_slice);
        let output = self.outputs.iter().find(|buffer| buffer.ptr().cast() == from);
        if let Some(buffer) = output {
            buffer.check_written().map_err(|unwritten| unwritten.to_string())?;
        }
        let all = input.or_else(|| output.map(|buffer| bytemuck::cast_slice(buffer.as_slice())));
        let all = all.ok_or_else(|| format!("{from:?} is no buffer of this machine"))?;
        all.get(..bytes)
            .map(<[u8]>::to_vec)
            .ok_or_else(|| format!("{from:?} has {} bytes, not {bytes}", all.len()))
    }
}
