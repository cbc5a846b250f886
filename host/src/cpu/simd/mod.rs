//! The inner loops, each written once and compiled three times: for any machine, with AVX2, FMA and F16C, and with AVX-512.
//!
//! All give the same bits. Float loops name their lanes and use fused multiply-adds, so that vector and
//! scalar code round alike; integer loops differ in instructions ([`isa`]) but integers are exact. All
//! `unsafe` of the CPU engine is in this folder.

mod attend;
mod float;
mod groups;
mod isa;
mod kquants;
mod quantize;
mod vector;

pub(super) use attend::{Attend, BLOCK, attend};
pub(super) use float::dot_rows;
pub(super) use groups::GroupType;
pub(super) use isa::Level;
pub(super) use kquants::KType;
pub(super) use quantize::{GROUP, Group, SUPER, Super, quantize_groups, quantize_supers};
pub(super) use vector::{gate, rms_norm, softmax, widen};

/// Calls `$body::<$isa, …>` compiled for the level, by way of a function that has its features.
macro_rules! dispatch {
    ($(#[$doc:meta])* pub(in $scope:path) fn $name:ident / $avx2:ident $(<$g:ident: $bound:path>)?
        ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:ident) => {
        $(#[$doc])*
        pub(in $scope) fn $name $(<$g: $bound>)? (level: $crate::cpu::simd::Level, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512dq")]
            fn avx512 $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                $body::<$crate::cpu::simd::isa::Avx512, $($g)?>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            if level.has_avx512() {
                // SAFETY: the level says that this machine has all of these.
                return unsafe { avx512::<$($g)?>($($arg),*) };
            }
            #[cfg(target_arch = "x86_64")]
            if level.has_avx2() {
                // SAFETY: the level says that this machine has AVX2, FMA and F16C.
                return unsafe { $avx2::<$($g)?>($($arg),*) };
            }
            let _ = level;
            $body::<$crate::cpu::simd::isa::Portable, $($g)?>($($arg),*)
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c")]
        fn $avx2 $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
            $body::<$crate::cpu::simd::isa::Avx2, $($g)?>($($arg),*)
        }
    };
}
use dispatch;

#[cfg(test)]
mod tests;
