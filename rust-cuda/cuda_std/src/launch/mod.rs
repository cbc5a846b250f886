//! Launches as data: what a kernel is, how it is to run, and with which arguments.
//!
//! `#[kernel]` generates a typed `prepare` for each kernel; the [`PreparedLaunch`] it returns can be
//! executed by anything that implements [`Launcher`]: a CUDA stream, a graph under capture, the emulator.

mod arguments;
mod config;

pub use crate::pointer::DevicePtr;
pub use arguments::Arguments;
pub use config::{LaunchConfig, LaunchError, MAX_CLUSTER, MAX_SHARED_BYTES, MAX_THREADS};

use core::ffi::c_void;

/// One parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Its name in the source.
    pub name: &'static str,
    /// Its type in the source.
    pub type_name: &'static str,
    /// Size of the value, in bytes.
    pub size: usize,
    /// Alignment of the value, in bytes.
    pub align: usize,
}

/// What a kernel is: written by `#[kernel]`.
pub struct KernelInfo {
    /// The function's name, and its PTX entry.
    pub name: &'static str,
    /// The source file, relative to the workspace.
    pub file: &'static str,
    /// The first paragraph of its documentation: what it computes.
    pub doc: &'static str,
    /// It waits for the launch before it (`griddepcontrol.wait`), so it may be launched with
    /// programmatic dependent launch.
    pub pdl: bool,
    /// Its parameters, in order.
    pub params: &'static [Param],
    /// Calls the kernel's host form for one thread, inside an emulator.
    ///
    /// # Safety
    /// One pointer for each parameter, each to a value of the parameter's type.
    pub emulate: unsafe fn(*const *const c_void),
}

impl core::fmt::Debug for KernelInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({})", self.name, self.file)
    }
}

/// One launch: kernel, shape and argument values.
#[derive(Debug, Clone)]
pub struct PreparedLaunch {
    kernel: &'static KernelInfo,
    config: LaunchConfig,
    arguments: Arguments,
}

impl PreparedLaunch {
    /// A launch of `kernel`. Use the kernel's own typed `prepare`, which this serves.
    #[doc(hidden)]
    #[must_use]
    pub fn new(kernel: &'static KernelInfo, config: LaunchConfig, arguments: Arguments) -> Self {
        debug_assert_eq!(kernel.params.len(), arguments.len(), "arguments of {}", kernel.name);
        Self {
            kernel,
            config,
            arguments,
        }
    }

    /// The kernel.
    #[must_use]
    pub fn kernel(&self) -> &'static KernelInfo {
        self.kernel
    }

    /// The shape of the launch.
    #[must_use]
    pub fn config(&self) -> &LaunchConfig {
        &self.config
    }

    /// The same launch with another shape.
    #[must_use]
    pub fn with_config(mut self, config: LaunchConfig) -> Self {
        self.config = config;
        self
    }

    /// The argument values.
    #[must_use]
    pub fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// Checks the shape against what every GPU allows and what the kernel declares.
    ///
    /// # Errors
    /// The first rule that the configuration breaks.
    pub fn check(&self) -> Result<(), LaunchError> {
        self.config.check(self.kernel)
    }
}

/// Something that executes launches, in order.
pub trait Launcher {
    /// Why a launch failed.
    type Error: From<LaunchError>;

    /// Executes, enqueues or records `launch`. Implementations call [`PreparedLaunch::check`] first.
    ///
    /// # Errors
    /// A configuration that is not allowed, or what the device reports.
    fn launch(&self, launch: &PreparedLaunch) -> Result<(), Self::Error>;
}

/// Makes `KERNELS`, the list of a crate's kernels, from the paths of their functions.
#[macro_export]
macro_rules! kernels {
    ($($(::$head:ident)? $first:ident $(:: $rest:ident)*),* $(,)?) => {
        /// Every kernel of this crate.
        #[cfg(not(target_arch = "nvptx64"))]
        pub static KERNELS: &[&$crate::launch::KernelInfo] = &[$(&$first $(:: $rest)* ::INFO),*];
    };
}
