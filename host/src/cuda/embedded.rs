//! The kernels that the build put into the program.

use super::cache::fnv1a;
use super::{DeviceInfo, Error, Result};
use cuda_link::CudaVersion;

/// One architecture's kernels, compressed.
#[derive(Debug)]
pub struct EmbeddedPtx {
    /// What it was compiled for, `sm_90`; a name that ends in `a` runs on exactly that GPU.
    pub arch: &'static str,
    /// Its PTX version, 10 × major + minor.
    pub ptx_version: u32,
    /// Bytes of the PTX.
    pub bytes: usize,
    /// The PTX's 64-bit FNV-1a hash.
    pub hash: u64,
    /// The PTX in zlib form.
    pub deflated: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

impl EmbeddedPtx {
    /// These kernels compiled otherwise: `text` in their place, for as long as the program runs.
    #[must_use]
    pub fn replaced(&self, text: &str) -> &'static Self {
        let deflated = miniz_oxide::deflate::compress_to_vec_zlib(text.as_bytes(), 1);
        Box::leak(Box::new(Self {
            arch: self.arch,
            ptx_version: self.ptx_version,
            bytes: text.len(),
            hash: fnv1a(text.as_bytes()),
            deflated: deflated.leak(),
        }))
    }

    /// The PTX.
    ///
    /// # Errors
    /// [`Error::DamagedModule`].
    pub fn text(&self) -> Result<String> {
        let damaged = || Error::DamagedModule { arch: self.arch };
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(self.deflated, self.bytes)
            .map_err(|_| damaged())?;
        let text = String::from_utf8(bytes).map_err(|_| damaged())?;
        if text.len() == self.bytes {
            Ok(text)
        } else {
            Err(damaged())
        }
    }

    /// The compute capability in its name.
    pub fn capability(&self) -> (u32, u32) {
        let digits: u32 = self
            .arch
            .trim_start_matches("sm_")
            .trim_end_matches('a')
            .parse()
            .unwrap_or(0);
        (digits / 10, digits % 10)
    }

    /// Whether its kernels have programmatic dependent launch (Hopper and later).
    pub fn has_dependent_launch(&self) -> bool {
        self.capability() >= (9, 0)
    }

    /// Whether its kernels have thread block clusters (Hopper and later).
    pub fn has_clusters(&self) -> bool {
        self.capability() >= (9, 0)
    }

    /// Whether it runs on such a GPU with such a driver.
    fn runs_on(&self, capability: (u32, u32), driver: CudaVersion) -> bool {
        let special = self.arch.ends_with('a');
        let fits = if special {
            self.capability() == capability
        } else {
            self.capability() <= capability
        };
        fits && oldest_driver_for(self.ptx_version) <= driver
    }
}

/// The CUDA version whose driver first takes that PTX version.
fn oldest_driver_for(ptx_version: u32) -> CudaVersion {
    CudaVersion(match ptx_version {
        0..=78 => 11080,
        79..=80 => 12000,
        // From 8.0 with CUDA 12.0 on, each minor version came with one of CUDA's.
        81..=89 => 12000 + 10 * (ptx_version - 80 + u32::from(ptx_version >= 86)),
        _ => 13000 + 10 * (ptx_version - 90),
    })
}

/// The best of `modules` for a GPU and driver: the most recent architecture that runs there, a special one before the
/// base of the same capability.
///
/// # Errors
/// [`Error::NoKernels`] where the build had no compiler for device code, [`Error::NoModuleFor`] where none runs.
pub fn best_for<'a>(modules: &'a [EmbeddedPtx], device: &DeviceInfo, driver: CudaVersion) -> Result<&'a EmbeddedPtx> {
    if let (true, Err(reason)) = (modules.is_empty(), DEVICE_COMPILER) {
        return Err(Error::NoKernels { reason });
    }
    let running = modules
        .iter()
        .filter(|module| module.runs_on(device.capability, driver));
    let best = running.max_by_key(|module| (module.capability(), module.arch.len()));
    best.ok_or_else(|| Error::NoModuleFor {
        device: device.name.clone(),
        capability: device.capability,
    })
}

#[cfg(test)]
mod tests {
    use super::{EmbeddedPtx, MODULES, best_for, oldest_driver_for};
    use crate::cuda::DeviceInfo;
    use cuda_link::CudaVersion;

    const fn module(arch: &'static str, ptx_version: u32) -> EmbeddedPtx {
        EmbeddedPtx {
            arch,
            ptx_version,
            bytes: 0,
            hash: 0,
            deflated: &[],
        }
    }

    const ALL: &[EmbeddedPtx] = &[
        module("sm_80", 78),
        module("sm_90", 78),
        module("sm_120a", 87),
        module("sm_121a", 88),
    ];

    fn chosen(capability: (u32, u32), driver: u32) -> Option<&'static str> {
        let device = DeviceInfo {
            ordinal: 0,
            name: "some GPU".into(),
            capability,
            memory_bytes: 0,
            multiprocessors: 0,
            multiprocessor_shared_bytes: 0,
            l2_bytes: 0,
            shared_bytes: 0,
            memory_clock_khz: 0,
            memory_bus_bits: 0,
        };
        best_for(ALL, &device, CudaVersion(driver))
            .ok()
            .map(|module| module.arch)
    }

    #[test]
    fn each_gpu_gets_the_newest_that_runs_on_it() {
        assert_eq!(chosen((7, 5), 13000), None);
        assert_eq!(chosen((8, 6), 13000), Some("sm_80"));
        assert_eq!(chosen((8, 9), 13000), Some("sm_80"));
        assert_eq!(chosen((9, 0), 13000), Some("sm_90"));
        assert_eq!(chosen((10, 0), 13000), Some("sm_90"));
        assert_eq!(chosen((12, 0), 13000), Some("sm_120a"));
        assert_eq!(chosen((12, 1), 13000), Some("sm_121a"));
    }

    #[test]
    fn an_older_driver_gets_the_base() {
        assert_eq!(chosen((12, 0), 12040), Some("sm_90"));
        assert_eq!(chosen((12, 0), 12080), Some("sm_120a"));
        assert_eq!(chosen((9, 0), 11070), None);
    }

    #[test]
    fn ptx_versions_came_with_these_drivers() {
        let pairs = [
            (78, 11080),
            (80, 12000),
            (83, 12030),
            (85, 12050),
            (87, 12080),
            (88, 12090),
            (90, 13000),
        ];
        for (ptx, cuda) in pairs {
            assert_eq!(oldest_driver_for(ptx), CudaVersion(cuda), "PTX {ptx}");
        }
    }

    #[test]
    fn what_the_build_embedded_inflates_to_ptx() {
        for module in MODULES {
            let text = module.text().expect("it is whole");
            assert!(text.contains(&format!(".target {}", module.arch)));
        }
    }
}
