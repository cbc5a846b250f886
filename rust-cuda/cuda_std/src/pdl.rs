//! Programmatic dependent launch: the next launch's blocks start while this one's still run.
//!
//! A kernel launched so must call [`wait`] before it reads what the launches before it write, and
//! before it writes what they may still read. Everything before the wait overlaps with them: weights
//! are loaded there. Before sm_90 both calls do nothing, and launches follow one another as ever.

/// `griddepcontrol.wait`: waits until the launches before this one have ended and their writes are
/// visible. Every thread of a kernel that is declared so must call it, once or more.
#[inline(always)]
pub fn wait() {
    on! { ptx {
        if crate::arch::HAS_PDL {
            // SAFETY: waits and touches no memory.
            unsafe { crate::llvm::griddepcontrol_wait() }
        }
    } emu { crate::emu::pdl_wait() } }
}

/// Says that this block ends without having waited: it has no work. At least one block of the grid must wait, so that
/// the grid does not end before the launches before it. No instruction; the emulator refuses blocks that say neither.
#[inline(always)]
pub fn leave() {
    on! { ptx {} emu { crate::emu::pdl_leave() } }
}

/// `griddepcontrol.launch_dependents`: the next launch may start once every block has called this or
/// ended. Best placed after the first loads have been issued.
#[inline(always)]
pub fn launch_dependents() {
    on! { ptx {
        if crate::arch::HAS_PDL {
            // SAFETY: a signal; touches no memory.
            unsafe { crate::llvm::griddepcontrol_launch_dependents() }
        }
    } emu {} }
}
