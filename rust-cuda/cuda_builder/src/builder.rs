//! The builder: what to compile, for what, and how.

use crate::{Arch, Compiler, NoCompiler, compiler, inner};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// How much of the source's position the PTX keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugInfo {
    /// Nothing.
    #[default]
    None,
    /// Line numbers, for profilers; the code stays the same.
    LineTables,
    /// Variables too. The backend cannot make this for optimised code.
    Full,
}

/// What went wrong.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no compiler for device code.
    #[error(transparent)]
    NoCompiler(#[from] NoCompiler),
    /// An option that the backend has no way to honour.
    #[error("cuda_builder: {option} cannot be honoured by rustc's NVPTX backend: {instead}")]
    Unsupported {
        /// The builder's method.
        option: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
    /// The compiler does not know the GPU.
    #[error("{compiler} cannot make code for {arch}: use a newer compiler")]
    UnknownArch {
        /// The compiler's description.
        compiler: String,
        /// The architecture.
        arch: Arch,
    },
    /// The device crate does not compile; the compiler's output follows.
    #[error("the device code does not compile for {arch}:\n{output}")]
    Compile {
        /// The architecture.
        arch: Arch,
        /// What cargo and the compiler wrote.
        output: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// Something outside the device code is not as the builder needs it.
    #[error("cuda_builder: {0}")]
    Setup(String),
}

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { path, source }
    }
}

/// The compiled device crate for one architecture.
#[derive(Clone, Debug)]
pub struct Ptx {
    /// What it was made for.
    pub arch: Arch,
    /// The PTX.
    pub text: String,
    /// The file that the text stands in.
    pub file: PathBuf,
    /// The source files that it was made from.
    pub sources: Vec<PathBuf>,
    /// The compiler's description of itself.
    pub compiler: String,
}

/// Compiles one device crate for any number of architectures.
#[derive(Clone, Debug)]
pub struct CudaBuilder {
    pub(crate) path: PathBuf,
    pub(crate) archs: Vec<Arch>,
    pub(crate) line_info: bool,
    pub(crate) profile: String,
    pub(crate) features: Vec<String>,
    compiler: Option<PathBuf>,
    target_dir: Option<PathBuf>,
    copy_to: Option<PathBuf>,
    refused: Option<(&'static str, &'static str)>,
}

impl CudaBuilder {
    /// A builder for the crate in the folder `path`, relative to the current folder (in a build script: the crate's).
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_path_buf(),
            archs: Vec::new(),
            line_info: false,
            profile: "device".to_owned(),
            features: Vec::new(),
            compiler: None,
            target_dir: None,
            copy_to: None,
            refused: None,
        }
    }

    /// Compiles for this architecture too. Without any call: for [`Arch::BASES`].
    pub fn arch(self, arch: Arch) -> Self {
        self.archs([arch])
    }

    /// Compiles for these architectures too.
    pub fn archs(mut self, archs: impl IntoIterator<Item = Arch>) -> Self {
        for arch in archs {
            if !self.archs.contains(&arch) {
                self.archs.push(arch);
            }
        }
        self
    }

    /// Keeps line numbers in the PTX, for profilers.
    pub fn generate_line_info(mut self, keep: bool) -> Self {
        self.line_info = keep;
        self
    }

    /// The same as [`Self::generate_line_info`], by Rust-CUDA's other name; [`DebugInfo::Full`] is refused.
    pub fn debug(mut self, info: DebugInfo) -> Self {
        self.line_info = info == DebugInfo::LineTables;
        self.refuse(info == DebugInfo::Full, "debug(Full)", "use DebugInfo::LineTables")
    }

    /// The cargo profile; `device` unless set. It must have fat link-time optimisation, one codegen unit and
    /// `panic = "abort"`.
    pub fn profile(mut self, name: &str) -> Self {
        name.clone_into(&mut self.profile);
        self
    }

    /// Switches a feature of the device crate on.
    pub fn feature(mut self, name: &str) -> Self {
        self.features.push(name.to_owned());
        self
    }

    /// Uses this compiler and no other.
    pub fn compiler(mut self, rustc: impl AsRef<Path>) -> Self {
        self.compiler = Some(rustc.as_ref().to_path_buf());
        self
    }

    /// Where the build's own files are kept; in a build script the outer build's target folder unless set.
    pub fn target_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.target_dir = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Also writes each PTX into this folder, as `ARCH.ptx`.
    pub fn copy_to(mut self, folder: impl AsRef<Path>) -> Self {
        self.copy_to = Some(folder.as_ref().to_path_buf());
        self
    }

    /// Refused when false: unoptimised code does not fit the emission of one self-contained PTX.
    pub fn release(self, optimised: bool) -> Self {
        self.refuse(!optimised, "release(false)", "device code is always optimised")
    }

    /// Refused when true.
    pub fn ftz(self, flush: bool) -> Self {
        self.refuse(
            flush,
            "ftz(true)",
            "use the flushing operations of cuda_std where they are meant",
        )
    }

    /// Refused when true: Rust never contracts a product and a sum.
    pub fn fma_contraction(self, contract: bool) -> Self {
        self.refuse(contract, "fma_contraction(true)", "write mul_add")
    }

    /// Refused when true.
    pub fn fast_sqrt(self, fast: bool) -> Self {
        self.refuse(
            fast,
            "fast_sqrt(true)",
            "use cuda_std's approximate square root where it is meant",
        )
    }

    /// Refused when true.
    pub fn fast_div(self, fast: bool) -> Self {
        self.refuse(
            fast,
            "fast_div(true)",
            "use cuda_std's approximate reciprocal where it is meant",
        )
    }

    /// Refused when true.
    pub fn optix(self, optix: bool) -> Self {
        self.refuse(optix, "optix(true)", "there is no OptiX support")
    }

    /// Notes the first option that cannot be honoured; [`Self::build`] reports it.
    fn refuse(mut self, refused: bool, option: &'static str, instead: &'static str) -> Self {
        if refused && self.refused.is_none() {
            self.refused = Some((option, instead));
        }
        self
    }

    /// The compiler that [`Self::build`] will use.
    ///
    /// # Errors
    /// [`NoCompiler`].
    pub fn find_compiler(&self) -> Result<Compiler, NoCompiler> {
        let set = std::env::var_os(EXPLICIT_COMPILER).map(PathBuf::from);
        compiler::discover(self.compiler.as_deref().or(set.as_deref()))
    }

    /// Compiles, the architectures side by side, and returns their PTX in the order asked for.
    ///
    /// # Errors
    /// Any [`enum@Error`]; the first architecture's where several fail.
    pub fn build(&self) -> Result<Vec<Ptx>, Error> {
        if let Some((option, instead)) = self.refused {
            return Err(Error::Unsupported { option, instead });
        }
        let compiler = self.find_compiler()?;
        let archs = if self.archs.is_empty() {
            &Arch::BASES[..]
        } else {
            &self.archs
        };
        if let Some(&arch) = archs.iter().find(|arch| !compiler.knows(arch.name())) {
            return Err(Error::UnknownArch {
                compiler: compiler.description,
                arch,
            });
        }
        let target_dir = self.target_dir.clone().or_else(outer_target_dir);
        let target_dir =
            target_dir.ok_or_else(|| Error::Setup("outside a build script target_dir must be set".into()))?;
        let built = std::thread::scope(|scope| {
            let compile = |&arch| {
                let (compiler, target_dir) = (&compiler, &target_dir);
                scope.spawn(move || inner::compile(self, compiler, target_dir, arch))
            };
            let running: Vec<_> = archs.iter().map(compile).collect();
            let results = running
                .into_iter()
                .map(|thread| thread.join().map_err(|_| Error::Setup("a build thread died".into()))?);
            results.collect::<Result<Vec<_>, _>>()
        })?;
        self.copy(&built)?;
        Ok(built)
    }

    fn copy(&self, built: &[Ptx]) -> Result<(), Error> {
        let Some(folder) = &self.copy_to else { return Ok(()) };
        std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
        for ptx in built {
            let file = folder.join(format!("{}.ptx", ptx.arch));
            std::fs::write(&file, &ptx.text).map_err(Error::file(&file))?;
        }
        Ok(())
    }
}

/// The build-time setting that names the compiler for device code, as cargo's `RUSTC` does for host code. It may stand
/// in `[env]` of a `.cargo/config.toml`.
pub(crate) const EXPLICIT_COMPILER: &str = "CUDA_BUILDER_RUSTC";

/// The target folder of the build that this script belongs to, from `…/target/PROFILE/build/PACKAGE/out`.
fn outer_target_dir() -> Option<PathBuf> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR")?);
    Some(out.ancestors().nth(4)?.join("cuda"))
}

#[cfg(test)]
mod tests {
    use super::{CudaBuilder, DebugInfo, Error};
    use crate::Arch;

    #[test]
    fn options_that_cannot_be_honoured_are_refused() {
        let asked = [
            CudaBuilder::new(".").release(false),
            CudaBuilder::new(".").ftz(true),
            CudaBuilder::new(".").fma_contraction(true),
            CudaBuilder::new(".").fast_sqrt(true),
            CudaBuilder::new(".").fast_div(true),
            CudaBuilder::new(".").optix(true),
            CudaBuilder::new(".").debug(DebugInfo::Full),
        ];
        for builder in asked {
            assert!(matches!(builder.build(), Err(Error::Unsupported { .. })));
        }
    }

    #[test]
    fn options_that_are_the_case_anyway_are_accepted() {
        let builder = CudaBuilder::new(".")
            .release(true)
            .ftz(false)
            .fma_contraction(false)
            .debug(DebugInfo::LineTables);
        assert!(builder.refused.is_none() && builder.line_info);
    }

    #[test]
    fn an_architecture_is_compiled_once() {
        let builder = CudaBuilder::new(".").arch(Arch::Sm90).archs(Arch::BASES);
        assert_eq!(builder.archs, [Arch::Sm90, Arch::Sm80]);
    }
}
