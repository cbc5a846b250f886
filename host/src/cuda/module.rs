//! The embedded kernels, loaded on a GPU.

use super::error::from_cust;
use super::{Context, EmbeddedPtx, Error, MODULES, Result, best_for, cache, compile, driver_version};
use cuda_link::api::{self, function_attribute as attribute};
use cuda_std::launch::KernelInfo;
use cust::memory::CopyDestination;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;

/// What one loaded kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelResources {
    /// Registers a thread.
    pub registers: u32,
    /// Bytes of static shared memory a block.
    pub static_shared_bytes: u32,
    /// Bytes of local memory a thread: spills and arrays that are not in registers.
    pub local_bytes: u32,
    /// Most threads a block can have with that many registers.
    pub max_threads: u32,
}

/// One kernel: the driver's handle and the most dynamic shared memory that a launch can ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) function: api::Function,
    pub(super) static_shared: u32,
}

/// The kernels of one architecture, loaded.
#[derive(Debug)]
pub struct Module {
    entries: HashMap<&'static str, Entry>,
    embedded: &'static EmbeddedPtx,
    // The entries point into it; it is unloaded before the context goes.
    loaded: cust::module::Module,
    context: Arc<Context>,
}

impl Module {
    /// Loads the embedded kernels that suit the context's GPU best: machine code from the cache, or compiled by the
    /// driver and then cached. A special architecture that the driver refuses gives way to the base.
    ///
    /// # Errors
    /// No kernels, none for this GPU, or the driver refuses them all.
    pub fn load(context: &Arc<Context>) -> Result<Self> {
        let driver = driver_version()?;
        let best = best_for(MODULES, context.device(), driver)?;
        match Self::load_embedded(context, best) {
            Err(_) if best.arch.ends_with('a') => {
                let bases = MODULES.iter().filter(|module| !module.arch.ends_with('a'));
                let base = bases.filter(|base| base.capability() <= context.device().capability);
                let base = base.max_by_key(|base| base.capability());
                let none = || Error::NoModuleFor {
                    device: context.device().name.clone(),
                    capability: context.device().capability,
                };
                Self::load_embedded(context, base.ok_or_else(none)?)
            }
            outcome => outcome,
        }
    }

    /// Loads these kernels and no others.
    ///
    /// # Errors
    /// The driver refuses them, or one that the program knows is missing.
    pub fn load_embedded(context: &Arc<Context>, embedded: &'static EmbeddedPtx) -> Result<Self> {
        Self::load_kernels(context, embedded, sparkinfer_device::KERNELS)
    }

    /// Loads PTX that has these kernels: another crate's than `sparkinfer-device`.
    ///
    /// # Errors
    /// The driver refuses it, or one of the kernels is missing.
    pub fn load_kernels<'a>(
        context: &Arc<Context>,
        embedded: &'static EmbeddedPtx,
        kernels: impl IntoIterator<Item = &'a &'static KernelInfo>,
    ) -> Result<Self> {
        let loaded = load_cached(context, embedded)?;
        let mut entries = HashMap::new();
        for kernel in kernels {
            let function = loaded
                .get_function(kernel.name)
                .map_err(|_| missing(kernel.name, embedded))?;
            let entry = Entry::new(function.to_raw().cast(), context)?;
            entries.insert(kernel.name, entry);
        }
        Ok(Self {
            entries,
            embedded,
            loaded,
            context: Arc::clone(context),
        })
    }

    /// What was loaded.
    pub fn embedded(&self) -> &'static EmbeddedPtx {
        self.embedded
    }

    /// The context that it is loaded in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What a kernel uses.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`], or a failed driver call.
    pub fn resources(&self, kernel: &str) -> Result<KernelResources> {
        let function = self.entry(kernel)?.function;
        Ok(KernelResources {
            registers: read(function, attribute::REGISTERS)?,
            static_shared_bytes: read(function, attribute::STATIC_SHARED_BYTES)?,
            local_bytes: read(function, attribute::LOCAL_BYTES)?,
            max_threads: read(function, attribute::MAX_THREADS)?,
        })
    }

    /// How many blocks of `threads` threads and `shared_bytes` of dynamic shared memory one multiprocessor holds.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`], or a failed driver call.
    pub fn blocks_per_multiprocessor(&self, kernel: &str, threads: u32, shared_bytes: u32) -> Result<u32> {
        let function = self.entry(kernel)?.function;
        let mut blocks = 0;
        // SAFETY: the function is this loaded module's.
        let status = unsafe {
            api::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                function,
                threads as c_int,
                shared_bytes as usize,
            )
        };
        status.check("cuOccupancyMaxActiveBlocksPerMultiprocessor")?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// Asks for `percent` of a multiprocessor's cache as shared memory under every kernel. One share for all: a
    /// multiprocessor runs dry before it divides the cache anew.
    ///
    /// # Errors
    /// A failed driver call.
    pub fn prefer_shared(&self, percent: u32) -> Result<()> {
        for entry in self.entries.values() {
            // SAFETY: the function is this loaded module's.
            let status = unsafe {
                api::cuFuncSetAttribute(entry.function, attribute::SHARED_CARVEOUT, percent.min(100) as c_int)
            };
            status.check("cuFuncSetAttribute")?;
        }
        Ok(())
    }

    /// The words of the module's global `name`, of which it has `N`.
    ///
    /// # Errors
    /// No such global, one of another size, or a failed driver call.
    pub fn global_words<const N: usize>(&self, name: &std::ffi::CStr) -> Result<Box<[u64; N]>> {
        let symbol = self
            .loaded
            .get_global::<[u64; N]>(name)
            .map_err(from_cust("cuModuleGetGlobal"))?;
        let mut words = Box::new([0; N]);
        symbol.copy_to(&mut *words).map_err(from_cust("cuMemcpyDtoH"))?;
        Ok(words)
    }

    /// Lets the kernel's launches have clusters of more blocks than every GPU allows.
    pub(super) fn allow_large_clusters(&self, kernel: &str) -> Result<()> {
        let function = self.entry(kernel)?.function;
        // SAFETY: the function is this loaded module's.
        let status = unsafe { api::cuFuncSetAttribute(function, attribute::LARGE_CLUSTERS, 1) };
        Ok(status.check("cuFuncSetAttribute")?)
    }

    pub(super) fn entry(&self, kernel: &str) -> Result<Entry> {
        self.entries
            .get(kernel)
            .copied()
            .ok_or_else(|| missing(kernel, self.embedded))
    }
}

impl Entry {
    /// Notes the kernel and lifts its limit on dynamic shared memory to all that the GPU gives a block.
    fn new(function: api::Function, context: &Context) -> Result<Self> {
        let static_shared = read(function, attribute::STATIC_SHARED_BYTES)?;
        let most = context.device().shared_bytes.saturating_sub(static_shared);
        // SAFETY: the function is of a module that was just loaded.
        let status = unsafe { api::cuFuncSetAttribute(function, attribute::MAX_DYNAMIC_SHARED_BYTES, most as c_int) };
        status.check("cuFuncSetAttribute")?;
        Ok(Self {
            function,
            static_shared,
        })
    }
}

/// The module from the cache, else compiled and cached.
fn load_cached(context: &Context, embedded: &'static EmbeddedPtx) -> Result<cust::module::Module> {
    let place = cache::Entry::of(embedded, context.device());
    let kept = place.as_ref().and_then(cache::Entry::load);
    if let Some(module) = kept.and_then(|cubin| cust::module::Module::from_cubin(cubin, &[]).ok()) {
        return Ok(module);
    }
    let cubin = compile::to_cubin(&embedded.text()?, embedded.arch)?;
    let module = cust::module::Module::from_cubin(&cubin, &[]).map_err(from_cust("cuModuleLoadDataEx"))?;
    if let Some(place) = place {
        place.store(&cubin);
    }
    Ok(module)
}

fn missing(kernel: &str, embedded: &EmbeddedPtx) -> Error {
    Error::NoSuchKernel {
        kernel: kernel.to_owned(),
        arch: embedded.arch,
    }
}

fn read(function: api::Function, which: c_int) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the pointer is to a live integer, the function to a loaded kernel.
    unsafe { api::cuFuncGetAttribute(&mut value, which, function) }.check("cuFuncGetAttribute")?;
    Ok(u32::try_from(value).unwrap_or(0))
}
