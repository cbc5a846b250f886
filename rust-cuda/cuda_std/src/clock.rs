//! Clocks, for measuring inside a kernel. In the emulator both count its calls.

/// `mov.u64 …, %clock64`: cycles of this multiprocessor.
#[inline(always)]
#[must_use]
pub fn cycles() -> u64 {
    on! { ptx {
        let now: u64;
        // SAFETY: reads a special register.
        unsafe { core::arch::asm!("mov.u64 {t}, %clock64;", t = out(reg64) now, options(nomem, nostack)) };
        now
    } emu { crate::emu::tick() } }
}

/// `mov.u64 …, %globaltimer`: nanoseconds, the same on all multiprocessors, in coarse steps.
#[inline(always)]
#[must_use]
pub fn nanoseconds() -> u64 {
    on! { ptx {
        let now: u64;
        // SAFETY: reads a special register.
        unsafe { core::arch::asm!("mov.u64 {t}, %globaltimer;", t = out(reg64) now, options(nomem, nostack)) };
        now
    } emu { crate::emu::tick() } }
}
