//! Opening the driver: once a process, and never unloaded.

use crate::status::{CudaVersion, Error, Status};
use crate::{api, stubs};
use std::sync::OnceLock;

/// Where the driver is looked for: the loader's own search, then WSL2's folder, which not every image lists.
const LIBRARIES: [&str; 2] = ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"];

/// The oldest driver that serves: the first whose compiler takes the PTX of the base kernels (PTX 7.8) and that has
/// `cuLaunchKernelEx`.
pub const OLDEST_DRIVER: CudaVersion = CudaVersion(11080);

/// The open, initialised driver.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    version: CudaVersion,
}

impl Driver {
    /// Opens and initialises the driver; later calls return the first call's outcome.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::DriverTooOld`], [`Error::DriverMismatch`], [`Error::NoDevice`], or the failure
    /// of `cuInit`.
    pub fn open() -> Result<Self, Error> {
        link()?;
        // SAFETY: the table is filled; the only flag that exists is 0.
        match unsafe { api::cuInit(0) } {
            Status::DRIVER_MISMATCH => return Err(Error::DriverMismatch),
            status => status.check("cuInit")?,
        }
        let mut version = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { api::cuDriverGetVersion(&mut version) }.check("cuDriverGetVersion")?;
        let found = CudaVersion(u32::try_from(version).unwrap_or(0));
        if found < OLDEST_DRIVER {
            return Err(Error::DriverTooOld {
                found,
                needed: OLDEST_DRIVER,
            });
        }
        Ok(Self { version: found })
    }

    /// The newest CUDA version that the driver supports.
    pub fn version(self) -> CudaVersion {
        self.version
    }
}

/// Opens the library and fills the table, once.
fn link() -> Result<(), Error> {
    static OUTCOME: OnceLock<Result<(), String>> = OnceLock::new();
    let outcome = OUTCOME.get_or_init(|| {
        let library = open_first(&LIBRARIES)?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: the slots are filled inside the `OnceLock`, before anybody is told that the driver is there, and
        // each with the library's symbol of that name.
        unsafe { stubs::fill(|name| library.get::<*const ()>(name.as_bytes()).ok().map(|symbol| *symbol)) };
        Ok(())
    });
    outcome.clone().map_err(|reason| Error::NoDriver { reason })
}

/// The first library of `names` that opens, or the loader's words about the first of them.
fn open_first(names: &[&str]) -> Result<libloading::Library, String> {
    let mut reason = None;
    for name in names {
        // SAFETY: the driver's initialisers are the ones that every CUDA program runs.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => return Ok(library),
            Err(error) => reason = reason.or(Some(error.to_string())),
        }
    }
    Err(reason.unwrap_or_else(|| "nowhere to look".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{Driver, open_first};
    use crate::status::Error;
    use crate::{Status, api};

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let reason = open_first(&["libno_such_driver.so.1"]).expect_err("there is no such library");
        assert!(reason.contains("libno_such_driver.so.1"), "{reason}");
    }

    /// The whole chain where there is no driver: the linked entry points exist, and answer instead of crashing.
    #[test]
    fn without_a_driver_calls_answer_not_initialised() {
        match Driver::open() {
            Ok(driver) => assert!(driver.version() >= super::OLDEST_DRIVER),
            Err(Error::NoDriver { .. }) => {
                let mut count = 0;
                // SAFETY: the pointer is to a live integer.
                let status = unsafe { api::cuDeviceGetCount(&mut count) };
                assert_eq!(status, Status::NOT_INITIALIZED);
            }
            Err(other) => println!("a driver without a usable GPU: {other}"),
        }
    }
}
