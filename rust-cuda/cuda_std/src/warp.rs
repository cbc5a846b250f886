//! Warps: 32 threads that exchange registers.
//!
//! The short names work on the whole warp; those of Rust-CUDA (`warp_shuffle_xor(mask, …)`) take the
//! mask of the lanes that take part and a width. Every lane of the mask that has not exited must make
//! the same call; the emulator reports where they do not, and reads from lanes that take no part.

/// All lanes.
pub const FULL: u32 = u32::MAX;

/// Lanes of a warp.
pub const SIZE: u32 = 32;

/// A 32-bit value that lanes exchange.
pub trait Lane: Copy {
    /// Its bits.
    fn to_lane(self) -> u32;
    /// The value of these bits.
    fn from_lane(bits: u32) -> Self;
}
impl Lane for u32 {
    #[inline(always)]
    fn to_lane(self) -> u32 {
        self
    }
    #[inline(always)]
    fn from_lane(bits: u32) -> Self {
        bits
    }
}
impl Lane for i32 {
    #[inline(always)]
    fn to_lane(self) -> u32 {
        self as u32
    }
    #[inline(always)]
    fn from_lane(bits: u32) -> Self {
        bits as i32
    }
}
impl Lane for f32 {
    #[inline(always)]
    fn to_lane(self) -> u32 {
        self.to_bits()
    }
    #[inline(always)]
    fn from_lane(bits: u32) -> Self {
        f32::from_bits(bits)
    }
}

/// The thread's lane, 0 … 31 (`%laneid`).
#[inline(always)]
#[must_use]
pub fn lane() -> u32 {
    on! { ptx {
        let lane: u32;
        // SAFETY: reads a special register.
        unsafe { core::arch::asm!("mov.u32 {l}, %laneid;", l = out(reg32) lane, options(pure, nomem, nostack)) };
        lane
    } emu { crate::emu::place().linear % 32 } }
}

/// The thread's warp in its block.
#[inline(always)]
#[must_use]
pub fn index() -> u32 {
    crate::thread::index_in_block() / 32
}

/// Warps of the block.
#[inline(always)]
#[must_use]
pub fn count() -> u32 {
    (crate::thread::block_dim_x() * crate::thread::block_dim_y() * crate::thread::block_dim_z()).div_ceil(32)
}

/// The lanes below this one, as a mask (`%lanemask_lt`).
#[inline(always)]
#[must_use]
pub fn lanes_below() -> u32 {
    (1 << lane()) - 1
}

/// `activemask`: the lanes that run together just now. In the emulator, those that have not exited.
#[inline(always)]
#[must_use]
pub fn active_mask() -> u32 {
    on! { ptx {
        // SAFETY: reads the state of the warp.
        unsafe { crate::llvm::activemask() as u32 }
    } emu { crate::emu::live_lanes() } }
}

/// `bar.warp.sync`: waits for the lanes of `mask`, and orders their accesses to memory.
#[inline(always)]
#[track_caller]
pub fn sync_warp(mask: u32) {
    on! { ptx {
        // SAFETY: a barrier; convergence is the caller's contract.
        unsafe { crate::llvm::bar_warp_sync(mask as i32) }
    } emu { crate::emu::collective(crate::emu::Collective::Sync, mask, &[]); } }
}

/// [`sync_warp`] of the whole warp.
#[inline(always)]
#[track_caller]
pub fn sync() {
    sync_warp(FULL);
}

/// The segment mask and clamp that PTX wants for a shuffle among groups of `width` lanes.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn segments(width: u32, clamp: u32) -> i32 {
    (((SIZE - width) << 8) | clamp) as i32
}

macro_rules! shuffles {
    ($($(#[$doc:meta])* $short:ident, $long:ident, $operand:ident, $intrinsic:ident, $clamp:literal, $mode:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[track_caller]
        pub fn $short<T: Lane>(value: T, $operand: u32) -> T {
            $long(FULL, value, $operand, SIZE)
        }

        #[doc = concat!("[`", stringify!($short), "`] among the lanes of `mask`, in groups of `width` lanes (a power of two).")]
        #[inline(always)]
        #[track_caller]
        pub fn $long<T: Lane>(mask: u32, value: T, $operand: u32, width: u32) -> T {
            on! { ptx {
                // SAFETY: exchanges registers; convergence is the caller's contract.
                let bits = unsafe { crate::llvm::$intrinsic(mask as i32, value.to_lane() as i32, $operand as i32, segments(width, $clamp)) };
                T::from_lane(bits as u32)
            } emu {
                let kind = crate::emu::Collective::Shuffle(crate::emu::Shuffle::$mode);
                T::from_lane(crate::emu::collective(kind, mask, &[value.to_lane(), $operand, width])[0])
            } }
        }
    )*};
}

shuffles! {
    /// `shfl.sync.bfly.b32`: the value of lane `lane ^ lane_mask`.
    shuffle_xor, warp_shuffle_xor, lane_mask, shfl_bfly, 31, Xor;
    /// `shfl.sync.down.b32`: the value of lane `lane + delta`; its own where there is none.
    shuffle_down, warp_shuffle_down, delta, shfl_down, 31, Down;
    /// `shfl.sync.up.b32`: the value of lane `lane - delta`; its own where there is none.
    shuffle_up, warp_shuffle_up, delta, shfl_up, 0, Up;
    /// `shfl.sync.idx.b32`: the value of lane `source`, counted within the group.
    shuffle, warp_shuffle_idx, source, shfl_idx, 31, Idx;
}

macro_rules! votes {
    ($($(#[$doc:meta])* $name:ident -> $result:ident, $intrinsic:ident, $kind:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[track_caller]
        pub fn $name(mask: u32, predicate: bool) -> $result {
            on! { ptx {
                // SAFETY: exchanges predicates; convergence is the caller's contract.
                unsafe { crate::llvm::$intrinsic(mask as i32, predicate) as $result }
            } emu { votes!(@result $result, crate::emu::collective(crate::emu::Collective::$kind, mask, &[predicate as u32])[0]) } }
        }
    )*};
    (@result bool, $bits:expr) => { $bits != 0 };
    (@result u32, $bits:expr) => { $bits };
}

votes! {
    /// `vote.sync.ballot.b32`: the lanes of `mask` whose predicate holds.
    warp_vote_ballot -> u32, ballot, Ballot;
    /// `vote.sync.all.pred`: whether the predicate holds for every lane of `mask`.
    warp_vote_all -> bool, vote_all, All;
    /// `vote.sync.any.pred`: whether the predicate holds for any lane of `mask`.
    warp_vote_any -> bool, vote_any, Any;
}

/// [`warp_vote_ballot`] of the whole warp.
#[inline(always)]
#[track_caller]
pub fn ballot(predicate: bool) -> u32 {
    warp_vote_ballot(FULL, predicate)
}

/// [`warp_vote_all`] of the whole warp.
#[inline(always)]
#[track_caller]
pub fn all(predicate: bool) -> bool {
    warp_vote_all(FULL, predicate)
}

/// [`warp_vote_any`] of the whole warp.
#[inline(always)]
#[track_caller]
pub fn any(predicate: bool) -> bool {
    warp_vote_any(FULL, predicate)
}

/// `match.any.sync.b32`: the lanes of `mask` that hold the same value as this one.
#[inline(always)]
#[track_caller]
pub fn warp_match_any<T: Lane>(mask: u32, value: T) -> u32 {
    on! { ptx {
        // SAFETY: exchanges registers; convergence is the caller's contract.
        unsafe { crate::llvm::match_any(mask as i32, value.to_lane() as i32) as u32 }
    } emu { crate::emu::collective(crate::emu::Collective::MatchAny, mask, &[value.to_lane()])[0] } }
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident($ty:ty), $intrinsic:ident, $kind:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[track_caller]
        pub fn $name(mask: u32, value: $ty) -> $ty {
            on! { ptx {
                // SAFETY: exchanges registers; convergence is the caller's contract.
                unsafe { crate::llvm::$intrinsic(value as i32, mask as i32) as $ty }
            } emu {
                let kind = crate::emu::Collective::Reduce(crate::emu::Reduce::$kind);
                crate::emu::collective(kind, mask, &[value as u32])[0] as $ty
            } }
        }
    )*};
}

reductions! {
    /// `redux.sync.add.u32`: the wrapping sum over the lanes of `mask`.
    redux_add(u32), redux_add, Add;
    /// `redux.sync.min.u32`.
    redux_min(u32), redux_umin, MinU;
    /// `redux.sync.max.u32`.
    redux_max(u32), redux_umax, MaxU;
    /// `redux.sync.add.s32`: the wrapping sum over the lanes of `mask`.
    redux_add_i32(i32), redux_add, Add;
    /// `redux.sync.min.s32`.
    redux_min_i32(i32), redux_min, MinS;
    /// `redux.sync.max.s32`.
    redux_max_i32(i32), redux_max, MaxS;
    /// `redux.sync.and.b32`.
    redux_and(u32), redux_and, And;
    /// `redux.sync.or.b32`.
    redux_or(u32), redux_or, Or;
    /// `redux.sync.xor.b32`.
    redux_xor(u32), redux_xor, Xor;
}

/// The sum over the warp, the same in every lane: five `shfl.sync.bfly`, from far to near.
#[inline(always)]
#[track_caller]
pub fn sum(mut value: f32) -> f32 {
    value += shuffle_xor(value, 16);
    value += shuffle_xor(value, 8);
    value += shuffle_xor(value, 4);
    value += shuffle_xor(value, 2);
    value + shuffle_xor(value, 1)
}

/// The largest value of the warp, the same in every lane; NaN only where all are.
#[inline(always)]
#[track_caller]
pub fn max(mut value: f32) -> f32 {
    value = crate::float::max(value, shuffle_xor(value, 16));
    value = crate::float::max(value, shuffle_xor(value, 8));
    value = crate::float::max(value, shuffle_xor(value, 4));
    value = crate::float::max(value, shuffle_xor(value, 2));
    crate::float::max(value, shuffle_xor(value, 1))
}
