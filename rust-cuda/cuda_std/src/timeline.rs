//! Marks of when blocks come where, for measurements of launches that overlap.
//!
//! With the crate's feature `timeline`, [`mark`] writes `%globaltimer` into the table [`NAME`] of the module; without, it
//! is nothing. The last launch of a kind is what stays.

/// Kinds of launches that have marks.
pub const LAUNCHES: usize = 8;
/// Points of each.
pub const POINTS: usize = 8;
/// Blocks of a launch; those behind are not marked.
pub const BLOCKS: usize = 512;
/// The table's name in PTX: `[launch][point][block]`, nanoseconds as u64, 0 where nobody came.
pub const NAME: &core::ffi::CStr = c"cuda_std_timeline";

#[cfg(all(feature = "timeline", target_arch = "nvptx64"))]
#[unsafe(export_name = "cuda_std_timeline")]
static TABLE: [core::sync::atomic::AtomicU64; LAUNCHES * POINTS * BLOCKS] =
    [const { core::sync::atomic::AtomicU64::new(0) }; LAUNCHES * POINTS * BLOCKS];

/// The first lane of each warp says that the block is at `point` of `launch`; the last one to say so stands.
#[inline(always)]
pub fn mark(launch: u32, point: u32) {
    #[cfg(all(feature = "timeline", target_arch = "nvptx64"))]
    {
        let block = crate::thread::block_idx_x() + crate::thread::grid_dim_x() * crate::thread::block_idx_y();
        let here = crate::warp::lane() == 0 && block < BLOCKS as u32;
        let place = ((launch * POINTS as u32 + point) * BLOCKS as u32 + block) as usize;
        let at = (&raw const TABLE).cast::<u64>().wrapping_add(place);
        // Without a branch, which would part the lanes, and in one piece, which the compiler leaves where it stands.
        // SAFETY: the table has the place.
        unsafe {
            core::arch::asm!(
                "{{ .reg .pred p; .reg .u64 t; .reg .u64 g; setp.ne.u32 p, {h}, 0; @p mov.u64 t, %globaltimer; @p cvta.to.global.u64 g, {a}; @p st.global.u64 [g], t; }}",
                h = in(reg32) u32::from(here), a = in(reg64) at, options(nostack));
        }
    }
    #[cfg(not(all(feature = "timeline", target_arch = "nvptx64")))]
    let _ = (launch, point);
}
