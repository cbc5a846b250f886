//! Launching kernels on a stream, at once or into a graph under capture.

use super::{Context, Error, MODULES, Module, Result, Stream, best_for, driver_version, select};
use cuda_link::api::{self, Function, LaunchAttribute};
use cuda_std::launch::{LaunchConfig, Launcher, PreparedLaunch};
use std::path::Path;
use std::sync::Arc;

/// Blocks of a cluster that every GPU with clusters allows.
const PORTABLE_CLUSTER: u32 = 8;

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

    /// The same with the kernels of a file, if there is one, in place of the program's own: PTX made for this GPU, for trials.
    ///
    /// # Errors
    /// As [`open`](Self::open), a file that cannot be read, or PTX that the driver does not take.
    pub fn open_with(ordinal: Option<u32>, ptx: Option<&Path>) -> Result<Self> {
        let Some(path) = ptx else {
            return Self::open(ordinal);
        };
        let ptx = std::fs::read_to_string(path).map_err(|error| Error::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        let context = Context::new(select(ordinal)?)?;
        let own = best_for(MODULES, context.device(), driver_version()?)?;
        Self::with_module(Module::load_embedded(&context, own.replaced(&ptx))?)
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

impl Gpu {
    /// Runs `f` on the driver's form of a launch. The request for programmatic dependent launch is passed on only where
    /// the loaded code has the wait that it needs.
    fn with_raw<R>(
        &self,
        launch: &PreparedLaunch,
        f: impl FnOnce(Function, &api::LaunchConfig) -> Result<R>,
    ) -> Result<R> {
        launch.check()?;
        let (kernel, config) = (launch.kernel(), launch.config());
        let entry = self.module.entry(kernel.name)?;
        self.check_shared(kernel.name, entry.static_shared, config)?;
        let attributes = self.attributes(kernel.name, config)?;
        let raw = api::LaunchConfig {
            grid: config.grid,
            block: config.block,
            shared_bytes: config.shared_bytes,
            stream: self.stream.raw(),
            attributes: attributes.as_ptr(),
            attribute_count: attributes.len() as u32,
        };
        f(entry.function, &raw)
    }

    fn attributes(&self, kernel: &'static str, config: &LaunchConfig) -> Result<Vec<LaunchAttribute>> {
        let embedded = self.module.embedded();
        let mut attributes = Vec::with_capacity(2);
        if config.pdl && embedded.has_dependent_launch() {
            attributes.push(LaunchAttribute::PROGRAMMATIC);
        }
        if config.cluster > 1 {
            if !embedded.has_clusters() {
                let (blocks, arch) = (config.cluster, embedded.arch);
                return Err(Error::NoClusters { kernel, blocks, arch });
            }
            if config.cluster > PORTABLE_CLUSTER {
                self.module.allow_large_clusters(kernel)?;
            }
            attributes.push(LaunchAttribute::cluster(config.cluster));
        }
        Ok(attributes)
    }

    /// How many of the launch's clusters the GPU holds at once.
    ///
    /// # Errors
    /// A configuration that is not allowed or has no clusters here, or a failed driver call.
    pub fn active_clusters(&self, launch: &PreparedLaunch) -> Result<u32> {
        let alone = launch.clone().with_config(launch.config().pdl(false));
        self.with_raw(&alone, |function, raw| {
            let mut clusters = 0;
            // SAFETY: the function is the loaded module's, and the configuration lives through the call.
            let status = unsafe { api::cuOccupancyMaxActiveClusters(&mut clusters, function, raw) };
            status.check("cuOccupancyMaxActiveClusters")?;
            Ok(u32::try_from(clusters).unwrap_or(0))
        })
    }
}

impl Launcher for Gpu {
    type Error = Error;

    /// Puts the launch on the stream: it runs when the stream comes to it or, under capture, becomes a node.
    fn launch(&self, launch: &PreparedLaunch) -> Result<()> {
        let mut arguments: Vec<_> = launch
            .arguments()
            .pointers()
            .into_iter()
            .map(<*const _>::cast_mut)
            .collect();
        self.with_raw(launch, |function, raw| {
            // SAFETY: the configuration and the argument values live through the call, in which the driver copies both;
            // the values have the kernel's parameter types, since only its typed `prepare` makes launches.
            let status = unsafe { api::cuLaunchKernelEx(raw, function, arguments.as_mut_ptr(), std::ptr::null_mut()) };
            Ok(status.check("cuLaunchKernelEx")?)
        })
    }
}
