//! What can go wrong with a GPU, in one line each.

use cuda_std::launch::LaunchError;
use sparkinfer_device::shape::ShapeError;
use std::path::PathBuf;
use thiserror::Error;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the GPU cannot be used, or what failed on it.
#[derive(Debug, Error)]
pub enum Error {
    /// No driver, no device, or a failed driver call.
    #[error(transparent)]
    Driver(#[from] cuda_link::Error),
    /// A launch whose shape is not allowed.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A kernel does not take that shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The program was built without kernels.
    #[error("this program was built without GPU kernels: {reason}")]
    NoKernels {
        /// The build's words.
        reason: &'static str,
    },
    /// No embedded module runs on the GPU.
    #[error("no embedded kernels run on {device} (compute capability {}.{})", capability.0, capability.1)]
    NoModuleFor {
        /// The GPU.
        device: String,
        /// Its compute capability.
        capability: (u32, u32),
    },
    /// The embedded PTX does not inflate to what the build wrote.
    #[error("the embedded kernels for {arch} are damaged: build the program again")]
    DamagedModule {
        /// The module's architecture.
        arch: &'static str,
    },
    /// A file of kernels cannot be read.
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's words.
        error: std::io::Error,
    },
    /// The driver's compiler refused the PTX.
    #[error("the driver cannot compile the kernels for {arch}: {log}")]
    Compile {
        /// The module's architecture.
        arch: &'static str,
        /// The compiler's first complaint.
        log: String,
    },
    /// The loaded module has no kernel of that name.
    #[error("the loaded kernels for {arch} have no `{kernel}`: build the program again")]
    NoSuchKernel {
        /// The kernel.
        kernel: String,
        /// The module's architecture.
        arch: &'static str,
    },
    /// A launch asks for more shared memory than this GPU gives a block.
    #[error("{kernel} asks for {wanted} bytes of shared memory a block, {device} has {available}")]
    SharedMemory {
        /// The kernel.
        kernel: &'static str,
        /// Bytes asked for, static and dynamic.
        wanted: u32,
        /// Bytes that a block can have.
        available: u32,
        /// The GPU.
        device: String,
    },
    /// A launch asks for thread block clusters, which the loaded code does not have.
    #[error(
        "{kernel} asks for clusters of {blocks} blocks, and the kernels loaded are for {arch}: clusters need sm_90"
    )]
    NoClusters {
        /// The kernel.
        kernel: &'static str,
        /// Blocks of a cluster.
        blocks: u32,
        /// What the loaded kernels were compiled for.
        arch: &'static str,
    },
    /// Device memory ran out.
    #[error("out of GPU memory: {wanted} bytes wanted, {free} of {total} free")]
    OutOfMemory {
        /// Bytes asked for.
        wanted: usize,
        /// Bytes free now, for everybody.
        free: usize,
        /// Bytes of the device.
        total: usize,
    },
    /// A copy between buffers of unequal length.
    #[error("a copy of {from} elements into {to}")]
    Length {
        /// Elements of the source.
        from: usize,
        /// Elements of the destination.
        to: usize,
    },
}

/// `cust`'s error as the driver's code, with the call that it stands for.
pub(super) fn from_cust(call: &'static str) -> impl FnOnce(cust::error::CudaError) -> Error {
    move |error| match cuda_link::Status(error as u32).check(call) {
        Err(error) => Error::Driver(error),
        // `cust` never returns success as an error.
        Ok(()) => Error::Driver(cuda_link::Error::Call {
            call,
            code: 999,
            text: error.to_string(),
        }),
    }
}
