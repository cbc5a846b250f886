//! The device library: what a kernel written in Rust can say to a GPU, and a host emulator of all of it.
//!
//! A kernel is a `pub unsafe fn` under [`kernel`]. For `nvptx64` it compiles to a PTX entry with
//! rustc's own backend; for the host the same source runs thread by thread in [`emu`]. Every
//! operation here has both forms; its documentation names the PTX instruction.
//!
//! | module | what |
//! |---|---|
//! | [`thread`] | indices, block barriers |
//! | [`warp`] | shuffles, votes, reductions, lane ids |
//! | [`barrier`] | named barriers |
//! | [`shared`] | shared memory by typed 32-bit handles |
//! | [`global`] | loads and stores with cache hints, prefetch |
//! | [`atomic`] | scoped atomics and fences |
//! | [`float`], [`trig`] | float instructions; exp, pow, sin and cos to an ulp or two |
//! | [`half2`] | f16 and bf16: conversions and packed arithmetic |
//! | [`dot`] | `dp4a` |
//! | [`mma`] | tensor cores: `mma.sync`, `ldmatrix` |
//! | [`copy`], [`mbarrier`] | asynchronous copies to shared memory |
//! | [`cluster`] | thread block clusters: barriers and shared memory across blocks |
//! | [`pdl`] | programmatic dependent launch |
//! | [`clock`], [`timeline`] | clocks; marks of when blocks come where |
//! | [`launch`] | launches as data (host) |
//! | [`emu`] | the emulator (host) |
//! | [`selftest`] | a kernel for each group of operations, with what it must compute |

#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(abi_ptx, asm_experimental_arch, stdarch_nvptx, link_llvm_intrinsics, abi_unadjusted)
)]
#![cfg_attr(target_arch = "nvptx64", allow(improper_ctypes, internal_features))]

// The attribute writes paths that begin with the crate's name; its own tests use it too.
extern crate self as cuda_std;

#[macro_use]
mod select;

pub mod arch;
pub mod atomic;
pub mod barrier;
pub mod clock;
pub mod cluster;
pub mod copy;
pub mod dot;
pub mod float;
pub mod global;
pub mod half2;
pub mod mbarrier;
mod memory;
pub mod mma;
pub mod pdl;
mod pointer;
pub mod shared;
pub mod thread;
pub mod timeline;
pub mod trig;
pub mod unroll;
pub mod warp;

#[cfg(target_arch = "nvptx64")]
mod llvm;

#[cfg(not(target_arch = "nvptx64"))]
pub mod emu;
#[cfg(not(target_arch = "nvptx64"))]
pub mod launch;
#[cfg(any(not(target_arch = "nvptx64"), feature = "selftest"))]
pub mod selftest;

pub use cuda_std_macros::kernel;
pub use memory::{AsyncWord, F32x2, F32x4, U32x2, U32x4, Word};
pub use pointer::DevicePtr;

/// What a kernel's file needs: `use cuda_std::prelude::*;`.
pub mod prelude {
    pub use crate::{
        DevicePtr, F32x2, F32x4, U32x2, U32x4, Word, arch, atomic, barrier, cluster, copy, dot, float, global, half2,
        kernel, mbarrier, mma, pdl, shared, shared::Shared, thread, trig, unroll, warp,
    };
}

#[cfg(target_arch = "nvptx64")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: `trap` ends the kernel.
    unsafe { core::arch::nvptx::trap() }
}
