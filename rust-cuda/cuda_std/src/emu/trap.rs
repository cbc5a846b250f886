//! Turns a wild access of a kernel into a fault: the signal handler makes the coroutine return.

use core::cell::Cell;
use corosensei::trap::{CoroutineTrapHandler, TrapHandlerRegs};
use std::sync::Once;

thread_local! {
    static RUNNING: Cell<Option<CoroutineTrapHandler<()>>> = const { Cell::new(None) };
    static ADDRESS: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Prepares for a trap of the thread that is about to be resumed.
pub(super) fn arm(handler: CoroutineTrapHandler<()>) {
    RUNNING.set(Some(handler));
}

/// No GPU thread runs.
pub(super) fn disarm() {
    RUNNING.set(None);
}

/// The address whose access ended the last thread, if that is how it ended.
pub(super) fn take() -> Option<usize> {
    ADDRESS.take()
}

static mut PREVIOUS: [Option<libc::sigaction>; 2] = [None; 2];
const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Installs the handler, once for the process. Signals from elsewhere go where they went before.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (i, signal) in SIGNALS.into_iter().enumerate() {
            // SAFETY: plain old data for which zero is valid; set before use. `PREVIOUS` is written
            // here only, before the handler can run.
            unsafe {
                let mut action: libc::sigaction = core::mem::zeroed();
                action.sa_sigaction = handle as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                let mut previous: libc::sigaction = core::mem::zeroed();
                if libc::sigaction(signal, &raw const action, &raw mut previous) == 0 {
                    PREVIOUS[i] = Some(previous);
                }
            }
        }
    });
}

unsafe extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers of these types to an SA_SIGINFO handler.
    let (address, context) = unsafe { ((*info).si_addr() as usize, &mut *context.cast::<libc::ucontext_t>()) };
    match RUNNING.get() {
        Some(handler) if handler.stack_ptr_in_bounds(stack_pointer(context)) => {
            ADDRESS.set(Some(address));
            // SAFETY: the stack pointer lies in the coroutine; its frames hold nothing that must be
            // dropped, for the launch ends here; the registers are set below.
            let registers = unsafe { handler.setup_trap_handler(|| ()) };
            set_registers(context, &registers);
        }
        _ => pass_on(signal),
    }
}

/// Puts the earlier handler back: the access repeats and reaches it.
fn pass_on(signal: i32) {
    let index = SIGNALS.iter().position(|&s| s == signal).unwrap_or(0);
    // SAFETY: written once before this handler was installed, and only read since.
    let previous = unsafe { PREVIOUS[index] };
    // SAFETY: both actions are valid.
    unsafe {
        match previous {
            Some(action) => libc::sigaction(signal, &raw const action, core::ptr::null_mut()),
            None => libc::signal(signal, libc::SIG_DFL) as i32,
        }
    };
}

#[cfg(target_arch = "x86_64")]
fn stack_pointer(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
}

#[cfg(target_arch = "x86_64")]
fn set_registers(context: &mut libc::ucontext_t, registers: &TrapHandlerRegs) {
    let TrapHandlerRegs {
        rip,
        rsp,
        rbp,
        rdi,
        rsi,
    } = *registers;
    let pairs = [
        (libc::REG_RIP, rip),
        (libc::REG_RSP, rsp),
        (libc::REG_RBP, rbp),
        (libc::REG_RDI, rdi),
        (libc::REG_RSI, rsi),
    ];
    for (register, value) in pairs {
        context.uc_mcontext.gregs[register as usize] = value as i64;
    }
}

#[cfg(target_arch = "aarch64")]
fn stack_pointer(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.sp as usize
}

#[cfg(target_arch = "aarch64")]
fn set_registers(context: &mut libc::ucontext_t, registers: &TrapHandlerRegs) {
    let TrapHandlerRegs {
        pc,
        sp,
        x0,
        x1,
        x29,
        lr,
    } = *registers;
    let machine = &mut context.uc_mcontext;
    (machine.pc, machine.sp) = (pc, sp);
    (machine.regs[0], machine.regs[1], machine.regs[29], machine.regs[30]) = (x0, x1, x29, lr);
}
