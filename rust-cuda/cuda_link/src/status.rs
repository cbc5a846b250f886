//! Result codes of driver calls and the errors made of them.

use std::ffi::CStr;
use thiserror::Error;

/// The `CUresult` of a driver call. A number and not an enumeration: drivers newer than the bindings return codes
/// that no list here knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
#[must_use]
pub struct Status(pub u32);

impl Status {
    /// The call did what it was asked.
    pub const SUCCESS: Self = Self(0);
    /// The driver could not allocate device (or page-locked host) memory.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// No driver is open, or `cuInit` has not run.
    pub const NOT_INITIALIZED: Self = Self(3);
    /// The device is held by another process in exclusive mode, or is otherwise not to be had now.
    pub const DEVICE_UNAVAILABLE: Self = Self(46);
    /// The driver sees no GPU.
    pub const NO_DEVICE: Self = Self(100);
    /// The PTX is for a newer instruction set than the driver's compiler knows.
    pub const UNSUPPORTED_PTX: Self = Self(222);
    /// An event or stream still has work in front of it.
    pub const NOT_READY: Self = Self(600);
    /// The driver is older than the kernel module or the other way round.
    pub const DRIVER_MISMATCH: Self = Self(803);

    /// `Ok` on success, else the failure with the call's name.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and [`Error::Busy`] for their codes, [`Error::Call`] for all others.
    pub fn check(self, call: &'static str) -> Result<(), Error> {
        match self {
            Self::SUCCESS => Ok(()),
            Self::OUT_OF_MEMORY => Err(Error::OutOfMemory { call }),
            Self::DEVICE_UNAVAILABLE => Err(Error::Busy),
            Self::NO_DEVICE => Err(Error::NoDevice),
            status => Err(Error::Call {
                call,
                code: status.0,
                text: status.text(),
            }),
        }
    }

    /// The driver's own words for this code, or "unknown error" where it has none.
    pub fn text(self) -> String {
        let mut words = std::ptr::null();
        // SAFETY: the driver stores a pointer to a constant string or leaves the null pointer.
        let known = unsafe { crate::api::cuGetErrorString(self.0, &mut words) } == Self::SUCCESS;
        if !known || words.is_null() {
            return "unknown error".to_owned();
        }
        // SAFETY: not null, and the driver's strings end in zero and live as long as the driver.
        unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
    }
}

/// Why the driver or a device cannot be used, or which call failed. Each is one line that says what to do.
#[derive(Debug, Error)]
pub enum Error {
    /// `libcuda.so.1` could not be opened.
    #[error("no NVIDIA driver found ({reason}): install the driver, or use the CPU")]
    NoDriver {
        /// The loader's words.
        reason: String,
    },
    /// The driver is older than the kernels need.
    #[error("the NVIDIA driver supports CUDA {found}, {needed} or newer is needed: update the driver, or use the CPU")]
    DriverTooOld {
        /// CUDA version of the driver.
        found: CudaVersion,
        /// Oldest version that serves.
        needed: CudaVersion,
    },
    /// The driver's library and kernel module do not belong together.
    #[error(
        "the NVIDIA driver's library and kernel module differ in version: restart the machine after the driver update"
    )]
    DriverMismatch,
    /// The driver works but sees no GPU.
    #[error("the NVIDIA driver sees no GPU: check `nvidia-smi`, or use the CPU")]
    NoDevice,
    /// There are GPUs, but not that many.
    #[error("there is no GPU number {ordinal}: the driver sees {count}, counted from 0")]
    NoSuchDevice {
        /// The number asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// The GPU is older than the kernels need.
    #[error("{name} has compute capability {}.{}, {}.{} or newer is needed: use the CPU", found.0, found.1, needed.0, needed.1)]
    UnsupportedDevice {
        /// The GPU's name.
        name: String,
        /// Its compute capability.
        found: (u32, u32),
        /// The oldest that serves.
        needed: (u32, u32),
    },
    /// Another process holds the device in exclusive mode.
    #[error("the GPU is busy: another process holds it in exclusive mode; end that process, or use the CPU")]
    Busy,
    /// The device has too little free memory.
    #[error("out of GPU memory in {call}")]
    OutOfMemory {
        /// The driver call that failed.
        call: &'static str,
    },
    /// Any other failure of a driver call.
    #[error("{call} failed: {text} (CUDA error {code})")]
    Call {
        /// The driver call that failed.
        call: &'static str,
        /// Its `CUresult`.
        code: u32,
        /// The driver's words for it.
        text: String,
    },
}

/// A CUDA version as the driver counts it: 1000 × major + 10 × minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion(pub u32);

impl std::fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::{CudaVersion, Error, Status};

    #[test]
    fn codes_become_the_error_that_says_what_to_do() {
        assert!(Status::SUCCESS.check("cuInit").is_ok());
        assert!(matches!(
            Status(2).check("cuMemAlloc"),
            Err(Error::OutOfMemory { call: "cuMemAlloc" })
        ));
        assert!(matches!(Status(46).check("cuCtxCreate"), Err(Error::Busy)));
        assert!(matches!(Status(100).check("cuInit"), Err(Error::NoDevice)));
        assert!(matches!(
            Status(719).check("cuStreamSynchronize"),
            Err(Error::Call { code: 719, .. })
        ));
    }

    #[test]
    fn every_error_is_one_line() {
        let errors = [
            Error::NoDriver {
                reason: "not found".into(),
            },
            Error::DriverTooOld {
                found: CudaVersion(11040),
                needed: CudaVersion(11080),
            },
            Error::DriverMismatch,
            Error::NoDevice,
            Error::NoSuchDevice { ordinal: 3, count: 1 },
            Error::UnsupportedDevice {
                name: "Tesla V100".into(),
                found: (7, 0),
                needed: (8, 0),
            },
            Error::Busy,
            Error::OutOfMemory { call: "cuMemAlloc" },
            Error::Call {
                call: "cuInit",
                code: 999,
                text: "unknown error".into(),
            },
        ];
        for error in errors {
            assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(CudaVersion(11080).to_string(), "11.8");
        assert_eq!(CudaVersion(13000).to_string(), "13.0");
    }
}
