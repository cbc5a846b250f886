//! Faults on the device: the emulated GPU, with a hand in its memory between launches.
//!
//! The engine, its plans and the kernels are the real ones; what a fault changes is what a fault in a kernel or in the
//! page accounting would change.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use cuda_std::launch::PreparedLaunch;
use sparkinfer::gpu::backend::{Backend, DeviceError, Fill, HostVisible, Memory, Result};
use sparkinfer::gpu::emulated::Emulated;

/// Something that goes wrong.
pub trait Fault {
    /// Before a launch. Says whether something was changed.
    ///
    /// # Errors
    /// The device's.
    fn before(&mut self, _device: &Emulated, _launch: &PreparedLaunch) -> Result<bool> {
        Ok(false)
    }

    /// After a launch. Says whether something was changed.
    ///
    /// # Errors
    /// The device's.
    fn after(&mut self, _device: &Emulated, _launch: &PreparedLaunch) -> Result<bool> {
        Ok(false)
    }

    /// What is copied to the device. Says whether something was changed.
    fn copied(&mut self, _bytes: &mut [u8]) -> bool {
        false
    }
}

/// The emulator with a fault.
pub struct Faulty {
    device: Emulated,
    fault: RefCell<Box<dyn Fault>>,
    planted: Rc<Cell<usize>>,
}

impl Faulty {
    /// A device with `fault`, and how often it has gone wrong so far.
    pub fn new(fault: Box<dyn Fault>) -> (Self, Rc<Cell<usize>>) {
        let planted = Rc::new(Cell::new(0));
        let fault = RefCell::new(fault);
        let device = Emulated::default();
        (
            Self {
                device,
                fault,
                planted: planted.clone(),
            },
            planted,
        )
    }

    fn count(&self, changed: bool) {
        self.planted.set(self.planted.get() + usize::from(changed));
    }
}

impl Backend for Faulty {
    type Recording = Vec<PreparedLaunch>;

    fn name(&self) -> String {
        "emulator with a fault".to_owned()
    }

    fn multiprocessors(&self) -> u32 {
        self.device.multiprocessors()
    }

    fn multiprocessor_shared_bytes(&self) -> u32 {
        self.device.multiprocessor_shared_bytes()
    }

    fn clusters(&self) -> bool {
        self.device.clusters()
    }

    fn memory(&self) -> Result<(u64, u64)> {
        self.device.memory()
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        self.device.allocate(bytes)
    }

    fn host_visible(&self, words: usize) -> Result<Box<dyn HostVisible>> {
        self.device.host_visible(words)
    }

    fn upload(&self, address: u64, bytes: usize, fill: Fill<'_>) -> Result<()> {
        self.device.upload(address, bytes, &mut |staging| {
            fill(staging)?;
            self.count(self.fault.borrow_mut().copied(staging));
            Ok(())
        })
    }

    fn download(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.device.download(address, bytes)
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.device.copy(from, to, bytes)
    }

    fn run(&self, launches: &[PreparedLaunch]) -> Result<()> {
        let mut fault = self.fault.borrow_mut();
        for launch in launches {
            self.count(fault.before(&self.device, launch)?);
            self.device.run(std::slice::from_ref(launch))?;
            self.count(fault.after(&self.device, launch)?);
        }
        Ok(())
    }

    fn record(&self, launches: &[PreparedLaunch]) -> Result<Self::Recording> {
        self.device.record(launches)
    }

    fn replay(&self, recording: &Self::Recording) -> Result<()> {
        self.run(recording)
    }

    fn check(&self) -> Result<()> {
        self.device.check()
    }

    fn synchronize(&self) -> Result<()> {
        self.device.synchronize()
    }
}

/// A kernel of one layer of the decode step.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// How its name begins: plans for some depths have a form of their own of some kernels.
    kernel: &'static str,
    /// Launches of the kernel in a step.
    layers: usize,
    layer: usize,
    seen: usize,
}

impl Place {
    fn new(kernel: &'static str, layers: usize, layer: usize) -> Self {
        Self {
            kernel,
            layers,
            layer,
            seen: 0,
        }
    }

    /// Whether this launch is the one; to be asked about every launch once.
    fn is(&mut self, launch: &PreparedLaunch) -> bool {
        if !launch.kernel().name.starts_with(self.kernel) {
            return false;
        }
        self.seen += 1;
        (self.seen - 1) % self.layers == self.layer
    }
}

/// The address that a launch has in a parameter: a pointer, or a struct that begins with one.
fn address(launch: &PreparedLaunch, parameter: &str) -> Result<u64> {
    let mut offset = 0;
    for known in launch.kernel().params {
        offset = usize::next_multiple_of(offset, known.align);
        let value = launch.arguments().bytes().get(offset..offset + known.size.min(8));
        if known.name == parameter {
            let value = value.and_then(|bytes| bytes.try_into().ok());
            return value.map(u64::from_le_bytes).ok_or_else(|| missing(launch, parameter));
        }
        offset += known.size;
    }
    Err(missing(launch, parameter))
}

fn missing(launch: &PreparedLaunch, parameter: &str) -> DeviceError {
    DeviceError(format!("{} has no address {parameter}", launch.kernel().name))
}

fn read(device: &Emulated, address: u64, count: usize) -> Result<Vec<f32>> {
    let mut values = vec![0f32; count];
    device.download(address, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

fn write(device: &Emulated, address: u64, values: &[f32]) -> Result<()> {
    device.write(address, bytemuck::cast_slice(values))
}

/// One head's query is that of the token before.
pub struct StaleQuery {
    place: Place,
    head: usize,
    head_dim: usize,
    kept: Option<Vec<f32>>,
}

impl StaleQuery {
    /// Head `head` of width `head_dim` in one of `layers` layers.
    pub fn new(layers: usize, layer: usize, head: usize, head_dim: usize) -> Self {
        let place = Place::new("decode_qkv", layers, layer);
        Self {
            place,
            head,
            head_dim,
            kept: None,
        }
    }
}

impl Fault for StaleQuery {
    fn after(&mut self, device: &Emulated, launch: &PreparedLaunch) -> Result<bool> {
        if !self.place.is(launch) {
            return Ok(false);
        }
        let head = address(launch, "out")? + 4 * (self.head * self.head_dim) as u64;
        let before = self.kept.replace(read(device, head, self.head_dim)?);
        match before {
            Some(before) => write(device, head, &before).map(|()| true),
            None => Ok(false),
        }
    }
}

/// The output projection of attention replaces the residual stream instead of being added to it.
pub struct MissingResidual {
    place: Place,
    width: usize,
}

impl MissingResidual {
    /// In one of `layers` layers of a residual stream of `width` values.
    pub fn new(layers: usize, layer: usize, width: usize) -> Self {
        Self {
            place: Place::new("decode_project", layers, layer),
            width,
        }
    }
}

impl Fault for MissingResidual {
    fn before(&mut self, device: &Emulated, launch: &PreparedLaunch) -> Result<bool> {
        if !self.place.is(launch) {
            return Ok(false);
        }
        // What is added to it is all that later launches see.
        write(device, address(launch, "stream")?, &vec![0.0; self.width]).map(|()| true)
    }
}

/// The two bytes of each 16-bit activation change places in the output projection of attention, for 256 columns.
pub struct ExchangedParts {
    place: Place,
    first: usize,
}

/// Steps of the largest of 256 activations.
const STEPS: f32 = 32512.0;

impl ExchangedParts {
    /// In one of `layers` layers, for the 256 columns from `first` on.
    pub fn new(layers: usize, layer: usize, first: usize) -> Self {
        Self {
            place: Place::new("decode_project", layers, layer),
            first,
        }
    }
}

impl Fault for ExchangedParts {
    fn before(&mut self, device: &Emulated, launch: &PreparedLaunch) -> Result<bool> {
        if !self.place.is(launch) {
            return Ok(false);
        }
        let columns = address(launch, "a")? + 4 * self.first as u64;
        let mut values = read(device, columns, 256)?;
        exchange(&mut values);
        write(device, columns, &values).map(|()| true)
    }
}

/// `x = s · (256 · high + low)` becomes `s · (256 · low + high)`, low being a signed byte.
fn exchange(values: &mut [f32]) {
    let largest = values.iter().fold(0f32, |most, value| most.max(value.abs()));
    if largest == 0.0 {
        return;
    }
    let step = largest / STEPS;
    for value in values {
        let all = (*value / step).round_ties_even() as i32;
        let low = i32::from(all as i8);
        let high = (all - low) >> 8;
        *value = step * (256 * low + high) as f32;
    }
}

/// The first two pages of the cache change places when the second is taken into use.
pub struct SwappedPages;

impl Fault for SwappedPages {
    fn copied(&mut self, bytes: &mut [u8]) -> bool {
        let table: Vec<u8> = [0u32, 1].iter().flat_map(|page| page.to_le_bytes()).collect();
        if bytes != table {
            return false;
        }
        bytes.rotate_left(4);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanged_bytes_are_those_of_sixteen_bits() {
        // Steps of 1: 0x0102 → 0x0201; 0x00ff = 256 − 1 → 256·(−1) + 1.
        let mut values = [32512.0, 258.0, 255.0, -258.0, 0.0];
        exchange(&mut values);
        assert_eq!(values, [127.0, 513.0, -255.0, -513.0, 0.0]);
        let mut nothing = [0.0; 4];
        exchange(&mut nothing);
        assert_eq!(nothing, [0.0; 4]);
    }

    #[test]
    fn only_a_table_of_two_pages_is_swapped() {
        let mut bytes = [0, 0, 0, 0, 1, 0, 0, 0];
        assert!(SwappedPages.copied(&mut bytes));
        assert_eq!(bytes, [1, 0, 0, 0, 0, 0, 0, 0]);
        assert!(!SwappedPages.copied(&mut bytes));
        assert!(!SwappedPages.copied(&mut [0; 4]));
    }
}
