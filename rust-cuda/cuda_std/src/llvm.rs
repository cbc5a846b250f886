//! LLVM's NVPTX intrinsics: every operation that must stay convergent is one of these, never `asm!`.

/// What `mma` to s32 returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct I32x4(pub i32, pub i32, pub i32, pub i32);

/// What `ldmatrix.x2` returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct I32x2(pub i32, pub i32);

/// What `mma` to f32 returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct F32x4(pub f32, pub f32, pub f32, pub f32);

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    pub fn shfl_bfly(mask: i32, value: i32, lane_mask: i32, clamp: i32) -> i32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    pub fn shfl_up(mask: i32, value: i32, delta: i32, clamp: i32) -> i32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    pub fn shfl_down(mask: i32, value: i32, delta: i32, clamp: i32) -> i32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    pub fn shfl_idx(mask: i32, value: i32, lane: i32, clamp: i32) -> i32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    pub fn ballot(mask: i32, predicate: bool) -> i32;
    #[link_name = "llvm.nvvm.vote.all.sync"]
    pub fn vote_all(mask: i32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    pub fn vote_any(mask: i32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.match.any.sync.i32"]
    pub fn match_any(mask: i32, value: i32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.add"]
    pub fn redux_add(value: i32, mask: i32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.umin"]
    pub fn redux_umin(value: i32, mask: i32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.umax"]
    pub fn redux_umax(value: i32, mask: i32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.min"]
    pub fn redux_min(value: i32, mask: i32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.max"]
    pub fn redux_max(value: i32, mask: i32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.and"]
    pub fn redux_and(value: i32, mask: i32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.or"]
    pub fn redux_or(value: i32, mask: i32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.xor"]
    pub fn redux_xor(value: i32, mask: i32) -> i32;
    #[link_name = "llvm.nvvm.activemask"]
    pub fn activemask() -> i32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    pub fn bar_warp_sync(mask: i32);

    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    pub fn barrier_all(id: i32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.count"]
    pub fn barrier_count(id: i32, threads: i32);
    #[link_name = "llvm.nvvm.barrier.cta.arrive.aligned.count"]
    pub fn barrier_arrive(id: i32, threads: i32);
    #[link_name = "llvm.nvvm.barrier.cta.red.popc.aligned.all"]
    pub fn barrier_popc(id: i32, predicate: bool) -> i32;
    #[link_name = "llvm.nvvm.barrier.cta.red.and.aligned.all"]
    pub fn barrier_and(id: i32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.barrier.cta.red.or.aligned.all"]
    pub fn barrier_or(id: i32, predicate: bool) -> bool;

    #[link_name = "llvm.nvvm.barrier.cluster.arrive.aligned"]
    pub fn cluster_arrive();
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.relaxed.aligned"]
    pub fn cluster_arrive_relaxed();
    #[link_name = "llvm.nvvm.barrier.cluster.wait.aligned"]
    pub fn cluster_wait();

    #[link_name = "llvm.nvvm.griddepcontrol.wait"]
    pub fn griddepcontrol_wait();
    #[link_name = "llvm.nvvm.griddepcontrol.launch.dependents"]
    pub fn griddepcontrol_launch_dependents();

    #[link_name = "llvm.nvvm.prmt"]
    pub fn prmt(a: i32, b: i32, selector: i32) -> i32;

    #[link_name = "llvm.nvvm.idp4a.s.s"]
    pub fn dp4a_ss(a: i32, b: i32, c: i32) -> i32;
    #[link_name = "llvm.nvvm.idp4a.u.u"]
    pub fn dp4a_uu(a: i32, b: i32, c: i32) -> i32;
    #[link_name = "llvm.nvvm.idp4a.s.u"]
    pub fn dp4a_su(a: i32, b: i32, c: i32) -> i32;
    #[link_name = "llvm.nvvm.idp4a.u.s"]
    pub fn dp4a_us(a: i32, b: i32, c: i32) -> i32;

    #[link_name = "llvm.nvvm.mma.m16n8k32.row.col.s8"]
    pub fn mma_s8(a0: i32, a1: i32, a2: i32, a3: i32, b0: i32, b1: i32, c0: i32, c1: i32, c2: i32, c3: i32) -> I32x4;
    #[link_name = "llvm.nvvm.mma.m16n8k32.row.col.u8.s8"]
    pub fn mma_u8_s8(a0: i32, a1: i32, a2: i32, a3: i32, b0: i32, b1: i32, c0: i32, c1: i32, c2: i32, c3: i32)
    -> I32x4;
    #[link_name = "llvm.nvvm.mma.m16n8k16.row.col.bf16"]
    pub fn mma_bf16(a0: i32, a1: i32, a2: i32, a3: i32, b0: i32, b1: i32, c0: f32, c1: f32, c2: f32, c3: f32) -> F32x4;
    #[link_name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x1.b16.p0"]
    pub fn ldmatrix_x1(row: *const u8) -> i32;
    #[link_name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.b16.p0"]
    pub fn ldmatrix_x2(row: *const u8) -> I32x2;
    #[link_name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p0"]
    pub fn ldmatrix_x4(row: *const u8) -> I32x4;
    #[link_name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x1.trans.b16.p0"]
    pub fn ldmatrix_x1_trans(row: *const u8) -> i32;
    #[link_name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.trans.b16.p0"]
    pub fn ldmatrix_x2_trans(row: *const u8) -> I32x2;
    #[link_name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p0"]
    pub fn ldmatrix_x4_trans(row: *const u8) -> I32x4;

    #[link_name = "llvm.fma.f32"]
    pub fn fma(a: f32, b: f32, c: f32) -> f32;
}
