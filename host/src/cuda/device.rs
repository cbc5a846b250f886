//! Which GPUs there are and what they are.

use super::{Error, Result};
use cuda_link::api::{self, device_attribute as attribute};
use cuda_link::{CudaVersion, Driver};
use std::ffi::{CStr, c_char, c_int};

/// The oldest compute capability that the embedded kernels run on.
pub const OLDEST_CAPABILITY: (u32, u32) = (8, 0);

/// One GPU, as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number, from 0.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub multiprocessor_shared_bytes: u32,
    /// Bytes of L2 cache.
    pub l2_bytes: u32,
    /// Bytes of shared memory that one block can have.
    pub shared_bytes: u32,
    /// Highest memory clock in kHz; 0 where the driver does not tell.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: u32,
}

impl DeviceInfo {
    /// Whether the base kernels run on it.
    pub fn is_supported(&self) -> bool {
        self.capability >= OLDEST_CAPABILITY
    }

    /// Memory bandwidth by the data sheet's rule, in bytes a second: two transfers a clock over the whole bus. `None`
    /// where the driver does not tell the clock.
    pub fn nominal_bandwidth(&self) -> Option<f64> {
        let clock = f64::from(self.memory_clock_khz) * 1e3;
        let bytes = f64::from(self.memory_bus_bits) / 8.0;
        (clock > 0.0).then_some(2.0 * clock * bytes)
    }

    fn read(ordinal: u32) -> Result<Self> {
        let mut device = 0;
        // SAFETY: the pointer is to a live integer; the driver checks the number.
        unsafe { api::cuDeviceGet(&mut device, ordinal as c_int) }.check("cuDeviceGet")?;
        let number = |which| read_attribute(device, which);
        Ok(Self {
            ordinal,
            name: read_name(device)?,
            capability: (
                number(attribute::CAPABILITY_MAJOR)?,
                number(attribute::CAPABILITY_MINOR)?,
            ),
            memory_bytes: read_memory(device)?,
            multiprocessors: number(attribute::MULTIPROCESSORS)?,
            multiprocessor_shared_bytes: number(attribute::SHARED_BYTES_OF_MULTIPROCESSOR)?,
            l2_bytes: number(attribute::L2_BYTES)?,
            shared_bytes: number(attribute::SHARED_BYTES_OPT_IN)?,
            memory_clock_khz: number(attribute::MEMORY_CLOCK_RATE)?,
            memory_bus_bits: number(attribute::MEMORY_BUS_WIDTH)?,
        })
    }
}

/// The newest CUDA version that the driver supports.
///
/// # Errors
/// Why there is no usable driver.
pub fn driver_version() -> Result<CudaVersion> {
    Ok(Driver::open()?.version())
}

/// Every GPU that the driver sees, supported or not.
///
/// # Errors
/// No driver, one too old, no GPU, or a failed driver call.
pub fn probe() -> Result<Vec<DeviceInfo>> {
    Driver::open()?;
    let mut count = 0;
    // SAFETY: the pointer is to a live integer.
    unsafe { api::cuDeviceGetCount(&mut count) }.check("cuDeviceGetCount")?;
    if count <= 0 {
        return Err(cuda_link::Error::NoDevice.into());
    }
    (0..count.unsigned_abs()).map(DeviceInfo::read).collect()
}

/// The GPU of that number or, without one, the first that is supported.
///
/// # Errors
/// As [`probe`], and where there is no such GPU or it is too old.
pub fn select(ordinal: Option<u32>) -> Result<DeviceInfo> {
    choose(probe()?, ordinal)
}

fn choose(devices: Vec<DeviceInfo>, ordinal: Option<u32>) -> Result<DeviceInfo> {
    let count = devices.len() as u32;
    let wanted = |device: &DeviceInfo| ordinal.map_or(device.is_supported(), |number| device.ordinal == number);
    let found = devices
        .iter()
        .find(|device| wanted(device))
        .or(devices.first().filter(|_| ordinal.is_none()));
    let Some(device) = found else {
        return Err(cuda_link::Error::NoSuchDevice {
            ordinal: ordinal.unwrap_or(0),
            count,
        }
        .into());
    };
    if !device.is_supported() {
        let (name, found) = (device.name.clone(), device.capability);
        return Err(Error::Driver(cuda_link::Error::UnsupportedDevice {
            name,
            found,
            needed: OLDEST_CAPABILITY,
        }));
    }
    Ok(device.clone())
}

fn read_attribute(device: api::Device, which: c_int) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the pointer is to a live integer.
    unsafe { api::cuDeviceGetAttribute(&mut value, which, device) }.check("cuDeviceGetAttribute")?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn read_memory(device: api::Device) -> Result<usize> {
    let mut bytes = 0;
    // SAFETY: the pointer is to a live integer.
    unsafe { api::cuDeviceTotalMem_v2(&mut bytes, device) }.check("cuDeviceTotalMem")?;
    Ok(bytes)
}

fn read_name(device: api::Device) -> Result<String> {
    let mut name = [0 as c_char; 256];
    // SAFETY: the driver writes at most that many bytes, the last a zero.
    unsafe { api::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device) }.check("cuDeviceGetName")?;
    // SAFETY: the driver ended the name with a zero inside the array.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Ok(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::{DeviceInfo, choose};

    fn device(ordinal: u32, capability: (u32, u32)) -> DeviceInfo {
        DeviceInfo {
            ordinal,
            name: format!("GPU {ordinal}"),
            capability,
            memory_bytes: 1 << 30,
            multiprocessors: 1,
            multiprocessor_shared_bytes: 100 << 10,
            l2_bytes: 1 << 20,
            shared_bytes: 99 << 10,
            memory_clock_khz: 3_201_000,
            memory_bus_bits: 6016,
        }
    }

    #[test]
    fn the_first_supported_gpu_is_taken() {
        let devices = vec![device(0, (7, 5)), device(1, (9, 0)), device(2, (12, 0))];
        assert_eq!(choose(devices.clone(), None).expect("one is supported").ordinal, 1);
        assert_eq!(choose(devices.clone(), Some(2)).expect("it is there").ordinal, 2);
        let old = choose(devices.clone(), Some(0)).expect_err("it is too old").to_string();
        assert!(old.contains("GPU 0 has compute capability 7.5, 8.0"), "{old}");
        let missing = choose(devices, Some(5)).expect_err("it is not there").to_string();
        assert!(
            missing.contains("no GPU number 5") && missing.contains('3'),
            "{missing}"
        );
    }

    #[test]
    fn only_old_gpus_are_named() {
        let error = choose(vec![device(0, (7, 0))], None)
            .expect_err("it is too old")
            .to_string();
        assert!(error.contains("GPU 0") && error.contains("7.0"), "{error}");
    }

    #[test]
    fn nominal_bandwidth_counts_two_transfers_a_clock() {
        let bandwidth = device(0, (9, 0)).nominal_bandwidth().expect("the clock is known");
        assert!((bandwidth - 4.814e12).abs() < 1e9, "{bandwidth}");
        let silent = DeviceInfo {
            memory_clock_khz: 0,
            ..device(0, (9, 0))
        };
        assert_eq!(silent.nominal_bandwidth(), None);
    }
}
