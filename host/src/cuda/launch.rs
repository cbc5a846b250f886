//! Launching kernels on a stream, at once or into a graph under capture.

use super::{Context, Error, Module, Result, Stream, select};
use cuda_link::api::{self, LaunchAttribute};
use cuda_std::launch::{LaunchConfig, Launcher, PreparedLaunch};
use std::sync::Arc;

/// A GPU made ready: kernels loaded, one stream. Kernels launched through it run in order.
#[derive(Debug)]
pub struct Gpu {
    module: Module,
    stream: Stream,
}

impl Gpu {
    /// Takes the GPU of that number or, without one, the first that is supported, and loads the kernels.
    ///
    /// # Errors
    /// Why there is no usable GPU, in one line.
    pub fn open(ordinal: Option<u32>) -> Result<Self> {
        let context = Context::new(select(ordinal)?)?;
        let stream = Stream::new(&context)?;
        Ok(Self {
            module: Module::load(&context)?,
            stream,
        })
    }

    /// A stream of its own for these kernels, on the GPU that they are loaded on.
    ///
    /// # Errors
    /// The driver makes no stream.
    pub fn with_module(module: Module) -> Result<Self> {
        let stream = Stream::new(module.context())?;
        Ok(Self { module, stream })
    }

    /// The context.
    pub fn context(&self) -> &Arc<Context> {
        self.stream.context()
    }

    /// The kernels.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Refuses a block that needs more shared memory than the GPU gives one.
    fn check_shared(&self, kernel: &'static str, static_shared: u32, config: &LaunchConfig) -> Result<()> {
        let device = self.context().device();
        let wanted = static_shared + config.shared_bytes;
        if wanted <= device.shared_bytes {
            return Ok(());
        }
        Err(Error::SharedMemory {
            kernel,
            wanted,
            available: device.shared_bytes,
            device: device.name.clone(),
        })
    }
}

impl Launcher for Gpu {
    type Error = Error;

    /// Puts the launch on the stream: it runs when the stream comes to it or, under capture, becomes a node. The
    /// request for programmatic dependent launch is passed on only where the loaded code has the wait that it needs.
    fn launch(&self, launch: &PreparedLaunch) -> Result<()> {
        launch.check()?;
        let (kernel, config) = (launch.kernel(), launch.config());
        let entry = self.module.entry(kernel.name)?;
        self.check_shared(kernel.name, entry.static_shared, config)?;
        let dependent = config.pdl && self.module.embedded().has_dependent_launch();
        let raw = api::LaunchConfig {
            grid: config.grid,
            block: config.block,
            shared_bytes: config.shared_bytes,
            stream: self.stream.raw(),
            attributes: &LaunchAttribute::PROGRAMMATIC,
            attribute_count: u32::from(dependent),
        };
        let mut arguments: Vec<_> = launch
            .arguments()
            .pointers()
            .into_iter()
            .map(<*const _>::cast_mut)
            .collect();
        // SAFETY: the configuration and the argument values live through the call, in which the driver copies both;
        // the values have the kernel's parameter types, since only its typed `prepare` makes launches.
        let status =
            unsafe { api::cuLaunchKernelEx(&raw, entry.function, arguments.as_mut_ptr(), std::ptr::null_mut()) };
        Ok(status.check("cuLaunchKernelEx")?)
    }
}
