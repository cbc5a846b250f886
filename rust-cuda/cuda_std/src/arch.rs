//! What the GPU that this code is compiled for can do.
//!
//! rustc sets `target_feature = "sm_NN"` for every architecture up to the one that `-Ctarget-cpu`
//! names; these constants are for `if`s in kernels: the branch not taken leaves no instruction.
//! In the emulator everything is there.

/// `sm_90` and later: programmatic dependent launch, bulk copies, clusters, `mbarrier.try_wait`.
pub const SM_90: bool = cfg!(any(not(target_arch = "nvptx64"), target_feature = "sm_90"));

/// Programmatic dependent launch; without it the calls of [`crate::pdl`] do nothing.
pub const HAS_PDL: bool = SM_90;

/// `cp.async.bulk`; without it the calls of [`crate::copy::bulk`] trap.
pub const HAS_BULK_COPY: bool = SM_90;

/// Thread block clusters; without them the barriers and remote accesses of [`crate::cluster`] trap.
pub const HAS_CLUSTERS: bool = SM_90;

/// Ends the kernel: what an operation does that this GPU lacks.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) fn trap() -> ! {
    // SAFETY: ends the kernel.
    unsafe { core::arch::nvptx::trap() }
}
