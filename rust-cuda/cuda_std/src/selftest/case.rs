//! The list of cases, and how one is judged.

use super::THREADS;
use crate::launch::{DevicePtr, KernelInfo, LaunchConfig, PreparedLaunch};

/// Each thread's output.
pub type Words = [[u32; 8]; THREADS];

/// A self-test.
pub struct Case {
    /// The kernel.
    pub info: &'static KernelInfo,
    /// PTX instructions that it must contain.
    pub instructions: &'static [&'static str],
    /// 0: outputs are compared bit by bit. Otherwise they are floats, and this is the allowed
    /// difference, relative to the larger of 1 and the expected value.
    pub tolerance: f32,
    /// The oldest GPU that runs it, as in `sm_90`.
    pub since: u32,
    /// Blocks of its cluster: 1 for none.
    pub cluster: u32,
    /// The launch of its kernel.
    pub(super) prepare: fn(LaunchConfig, DevicePtr<u32>, DevicePtr<u32>) -> PreparedLaunch,
    /// What it must compute from its input, by other means.
    pub(super) expect: fn(&[[u32; 4]; THREADS]) -> Words,
}

/// An output word that is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mismatch {
    /// The thread.
    pub thread: usize,
    /// Its output word.
    pub word: usize,
    /// What it is.
    pub got: u32,
    /// What it should be.
    pub want: u32,
}

impl Case {
    /// The launch, with `input` of 256 words and `output` of 512.
    #[must_use]
    pub fn launch(&self, input: DevicePtr<u32>, output: DevicePtr<u32>) -> PreparedLaunch {
        let config = LaunchConfig::shaped([self.cluster, 1, 1], [16, 2, 2])
            .shared(4096)
            .cluster(self.cluster)
            .pdl(self.info.pdl);
        (self.prepare)(config, input, output)
    }

    /// Compares an output with what it must be.
    ///
    /// # Errors
    /// The first word that differs.
    pub fn check(&self, input: &[u32], output: &[u32]) -> Result<(), Mismatch> {
        let input = core::array::from_fn(|i| core::array::from_fn(|j| input[4 * i + j]));
        let want = (self.expect)(&input);
        for (i, (&got, &want)) in output.iter().zip(want.as_flattened()).enumerate() {
            if !self.agrees(got, want) {
                return Err(Mismatch {
                    thread: i / 8,
                    word: i % 8,
                    got,
                    want,
                });
            }
        }
        Ok(())
    }

    fn agrees(&self, got: u32, want: u32) -> bool {
        let (x, y) = (f32::from_bits(got), f32::from_bits(want));
        let near = (x - y).abs() <= self.tolerance * y.abs().max(1.0);
        got == want || (self.tolerance > 0.0 && (near || x.is_nan() && y.is_nan()))
    }
}

/// Input words: random for the seed.
#[must_use]
pub fn input(seed: u32) -> Vec<u32> {
    let mut state = u64::from(seed) << 32 | 0x9e37_79b9;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..THREADS * 4).map(|_| next()).collect()
}

macro_rules! cases {
    ($($name:ident since $since:literal $(cluster $cluster:literal)? tolerance $tolerance:literal: $($instruction:literal)*;)*) => {
        /// Every self-test.
        pub static CASES: &[Case] = &[$(Case {
            info: &super::$name::INFO,
            instructions: &[$($instruction),*],
            tolerance: $tolerance,
            since: $since,
            cluster: 1 $(- 1 + $cluster)?,
            prepare: super::$name::prepare,
            expect: expected::$name,
        }),*];
    };
}

/// What each kernel must compute, by its name.
mod expected {
    pub use super::super::clusters::expected::*;
    pub use super::super::copies::expected::*;
    pub use super::super::exchange::expected::*;
    pub use super::super::matrices::expected::*;
    pub use super::super::numbers::expected::*;
    pub use super::super::stores::expected::*;
}

cases! {
    selftest_places since 80 tolerance 0.0: "%tid.x" "%tid.y" "%tid.z" "%ntid.x" "%nctaid.x" "%ctaid.x" "%laneid";
    selftest_shuffles since 80 tolerance 0.0: "shfl.sync.bfly.b32" "shfl.sync.up.b32" "shfl.sync.down.b32" "shfl.sync.idx.b32";
    selftest_votes since 80 tolerance 0.0: "vote.sync.ballot.b32" "vote.sync.all.pred" "vote.sync.any.pred" "match.any.sync.b32" "activemask.b32";
    selftest_reductions since 80 tolerance 0.0: "redux.sync.add" "redux.sync.min.u32" "redux.sync.max.u32" "redux.sync.min.s32" "redux.sync.max.s32" "redux.sync.and.b32" "redux.sync.or.b32" "redux.sync.xor.b32";
    selftest_barriers since 80 tolerance 0.0: "barrier.sync.aligned|bar.sync" "red.popc" "red.and.pred" "red.or.pred" "arrive" "bar.warp.sync";
    selftest_shared since 80 tolerance 0.0: "ld.shared.b32" "st.shared.b32" "ld.shared.v4.b32" "st.shared.v4.b32" "ld.shared.v2.b32" "st.shared.v2.b32" "ld.shared.b64" "ld.shared.u8" "ld.shared.b16" ".shared .align 16 .b8 shared_";
    selftest_shared_atomics since 80 tolerance 0.0: "atom.relaxed.cta.shared.add.u32" "atom.relaxed.cta.shared.max.s32" "atom.relaxed.cta.shared.min.u32" "atom.relaxed.cta.shared.or.b32" "atom.relaxed.cta.shared.add.f32" "atom.acq_rel.cta.shared.cas.b32" "atom.relaxed.cta.shared.exch.b32";
    selftest_loads since 80 tolerance 0.0: "ld.global.nc.b32" "ld.global.L1::no_allocate.v4.b32" "ld.global.L1::no_allocate.v2.b32" "ld.global.cg.b32" "ld.global.ca.b32" "ld.volatile.global.b32" "ld.global.nc.L1::evict_last.b32" "ld.global.L1::no_allocate.L2::cache_hint.v4.b32" "createpolicy.fractional.L2::evict_first.b64" "prefetch.global.L2";
    selftest_stores since 80 tolerance 0.0: "st.global.v4.b32" "st.global.cg.b32" "st.global.cs.b32" "st.volatile.global.b32" "st.global.L2::cache_hint.b32" "createpolicy.fractional.L2::evict_last.b64";
    selftest_atomics since 80 tolerance 0.0: "atom.relaxed.gpu.global.add.u32" "atom.acq_rel.gpu.global.add.u32" "red.relaxed.gpu.global.add.u32" "red.release.gpu.global.add.u32" "atom.relaxed.gpu.global.max.s32" "atom.relaxed.cta.global.min.u32" "atom.relaxed.cta.global.or.b32" "atom.acq_rel.gpu.global.cas.b32" "atom.acq_rel.sys.global.exch.b32" "ld.acquire.gpu.global.b32" "st.release.gpu.global.b32" "red.relaxed.gpu.global.add.f32" "atom.relaxed.gpu.global.add.u64" "fence.acq_rel.gpu";
    selftest_floats since 80 tolerance 0.0: "fma.rn.f32" "rcp.rn.f32" "sqrt.rn.f32" "min.f32" "max.f32" "cvt.rni.s32.f32" "cvt.rzi.u32.f32" "cvt.rn.f32.s32" "div.rn.f32" "cvt.rni.f32.f32" "cvt.rmi.f32.f32";
    selftest_approximations since 80 tolerance 1e-6: "ex2.approx.ftz.f32" "lg2.approx.f32" "rsqrt.approx.f32" "rcp.approx.ftz.f32" "sin.approx.f32" "cos.approx.f32" "div.approx.f32";
    selftest_functions since 80 tolerance 5e-7: "fma.rn.f32" "ex2.approx.ftz.f32";
    selftest_halves since 80 tolerance 0.0: "cvt.f32.f16" "cvt.rn.f16.f32" "cvt.rn.bf16.f32" "cvt.rn.f16x2.f32" "cvt.rn.bf16x2.f32" "fma.rn.f16x2" "fma.rn.bf16x2" "add.rn.f16x2" "mul.rn.f16x2" "max.f16x2";
    selftest_dots since 80 tolerance 0.0: "dp4a.s32.s32" "dp4a.u32.u32" "dp4a.s32.u32" "dp4a.u32.s32";
    selftest_integer_mma since 80 tolerance 0.0: "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32" "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32";
    selftest_float_mma since 80 tolerance 2e-6: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
    selftest_matrices since 80 tolerance 0.0: "ldmatrix.sync.aligned.m8n8.x1" "ldmatrix.sync.aligned.m8n8.x2" "ldmatrix.sync.aligned.m8n8.x4" "ldmatrix.sync.aligned.m8n8.x1.trans" "ldmatrix.sync.aligned.m8n8.x4.trans";
    selftest_async_copies since 80 tolerance 0.0: "cp.async.ca.shared.global" "cp.async.cg.shared.global" "cp.async.commit_group" "cp.async.wait_group 1" "cp.async.wait_group 0";
    selftest_bulk_copies since 90 tolerance 0.0: "mbarrier.init.shared.b64" "mbarrier.arrive.expect_tx.shared::cta.b64" "mbarrier.arrive.shared.b64" "mbarrier.try_wait.parity.shared::cta.b64" "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint" "fence.proxy.async.shared::cta" "cp.async.bulk.prefetch.L2.global";
    selftest_clusters since 90 cluster 8 tolerance 0.0: "%cluster_ctarank" "%cluster_nctarank" "%clusterid.x" "barrier.cluster.arrive.aligned" "barrier.cluster.wait.aligned" "mapa.shared::cluster.u32" "st.shared::cluster.b32" "st.shared::cluster.v2.b32" "st.shared::cluster.v4.b32" "st.shared::cluster.b16" "ld.shared::cluster.b32" "ld.shared::cluster.b64" "ld.shared::cluster.v4.b32";
    selftest_cluster_signals since 90 cluster 8 tolerance 0.0: "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32" "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64" "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32" "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32" "mbarrier.arrive.release.cluster.shared::cluster.b64" "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64" "fence.mbarrier_init.release.cluster" "barrier.cluster.arrive.relaxed.aligned";
    selftest_dependency since 90 tolerance 0.0: "griddepcontrol.wait" "griddepcontrol.launch_dependents" "%clock64" "%globaltimer";
}
