//! GPU threads as coroutines.

use super::asynchronous::Copies;
use super::context::Place;
use core::cell::RefCell;
use core::ffi::c_void;
use core::panic::Location;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

/// Stack of a GPU thread, in bytes: what a kernel's frames need on the host, and a panic's on top.
const STACK_BYTES: usize = 96 * 1024;

pub(super) type Thread = Coroutine<(), (), (), DefaultStack>;

/// What a thread waits for.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub what: &'static str,
    pub site: &'static Location<'static>,
}

/// The state of one thread.
pub(super) struct Lane {
    pub place: Place,
    pub yielder: *const Yielder<(), ()>,
    pub waiting: Option<Waiting>,
    pub done: bool,
    /// What it brings to a collective operation.
    pub input: [u32; 10],
    /// What it takes from one.
    pub result: [u32; 4],
    pub copies: Copies,
    /// The cluster barrier's phase at which it arrived and has not waited.
    pub arrived: Option<u32>,
    /// Phases of the cluster's barrier that it has waited for.
    pub passed: u32,
}

impl Lane {
    pub fn new(place: Place) -> Self {
        Self {
            place,
            yielder: core::ptr::null(),
            waiting: None,
            done: false,
            input: [0; 10],
            result: [0; 4],
            copies: Copies::default(),
            arrived: None,
            passed: 0,
        }
    }
}

thread_local! {
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A coroutine that runs the kernel for one thread.
pub(super) fn spawn(
    emulate: unsafe fn(*const *const c_void),
    arguments: *const *const c_void,
) -> std::io::Result<Thread> {
    let stack = match STACKS.with_borrow_mut(Vec::pop) {
        Some(stack) => stack,
        None => DefaultStack::new(STACK_BYTES)?,
    };
    Ok(Coroutine::with_stack(stack, move |yielder, ()| {
        super::context::with(|cluster| cluster.lane_mut().yielder = yielder);
        // SAFETY: the arguments are those of a `PreparedLaunch` of this kernel, and outlive the launch.
        unsafe { emulate(arguments) }
    }))
}

/// Keeps the stack of a thread that has ended for the next.
pub(super) fn recycle(thread: Thread) {
    let stack = thread.into_stack();
    STACKS.with_borrow_mut(|stacks| stacks.push(stack));
}
