//! Runs launches, block by block.

use super::block::Block;
use super::fault::{Fault, FaultKind, Raised};
use super::lanes::{self, Thread};
use super::order::Order;
use super::{buffer, context, trap};
use crate::launch::{Launcher, PreparedLaunch};
use core::ffi::c_void;
use corosensei::CoroutineResult;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Executes launches on the host, with all the checks of [`super`].
///
/// ```
/// use cuda_std::{emu::{Buffer, Emulator}, launch::LaunchConfig, prelude::*};
///
/// /// Doubles `n` values.
/// #[kernel]
/// pub unsafe fn double(x: *mut f32, n: u32) {
///     let i = thread::index_1d();
///     if i < n {
///         // SAFETY: the launch passes `n` values.
///         unsafe { *x.add(i as usize) *= 2.0 };
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let x = Buffer::from_slice(&[1.0f32, 2.0, 3.0]);
/// double::launch(&Emulator::new(), LaunchConfig::new(1, 32), x.ptr(), 3)?;
/// assert_eq!(x.to_vec(), [2.0, 4.0, 6.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Emulator {
    seed: u64,
}

impl Emulator {
    /// An emulator that runs everything in its natural order.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An emulator that permutes blocks, warps and lanes as `seed` says (0: natural order).
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self { seed }
    }

    /// Runs `test` under the natural order and `permutations` others.
    ///
    /// # Errors
    /// The first error of `test`.
    pub fn under_orders<E>(permutations: u64, mut test: impl FnMut(&Self) -> Result<(), E>) -> Result<(), E> {
        (0..=permutations).try_for_each(|seed| test(&Self::with_seed(seed)))
    }
}

impl Launcher for Emulator {
    type Error = Fault;

    fn launch(&self, launch: &PreparedLaunch) -> Result<(), Fault> {
        launch.check()?;
        if launch.config().cluster > 1 {
            let detail = "the emulator runs blocks one after the other, and no clusters".to_owned();
            return Err(fault_of(launch, FaultKind::Launch, detail));
        }
        trap::install();
        let arguments = launch.arguments().pointers();
        let [x, y, _] = launch.config().grid;
        let mut order = Order::new(self.seed);
        let blocks = order.permutation(launch.config().blocks() as usize);
        let mut block = Box::new(Block::new(launch.kernel(), launch.config(), order));
        for number in blocks {
            let number = number as u32;
            block.start([number % x, number / x % y, number / (x * y)], launch.config());
            run_block(&mut block, launch, arguments.as_ptr())?;
        }
        match buffer::damaged() {
            None => Ok(()),
            Some(detail) => Err(fault_of(launch, FaultKind::GlobalAccess, detail)),
        }
    }
}

fn fault_of(launch: &PreparedLaunch, kind: FaultKind, detail: String) -> Fault {
    Fault {
        kernel: launch.kernel().name,
        block: None,
        thread: None,
        kind,
        detail,
        site: None,
    }
}

fn run_block(block: &mut Block, launch: &PreparedLaunch, arguments: *const *const c_void) -> Result<(), Fault> {
    let threads = 0..block.lanes.len();
    let spawned: Result<Vec<_>, _> = threads
        .map(|_| lanes::spawn(launch.kernel().emulate, arguments).map(Some))
        .collect();
    let mut threads = spawned.map_err(|error| {
        let detail = format!("no memory for the stacks of a block's threads: {error}; run fewer tests at once");
        fault_of(launch, FaultKind::Launch, detail)
    })?;
    let block: *mut Block = block;
    let current = context::enter(block);
    // SAFETY: `block` outlives the call and is reached through the current pointer only meanwhile.
    let run = catch_unwind(AssertUnwindSafe(|| unsafe { schedule(block, &mut threads) }));
    trap::disarm();
    // A fault leaves suspended threads: they unwind while their block is still current.
    drop(threads);
    drop(current);
    // SAFETY: no thread exists any more.
    conclude(unsafe { &mut *block }, run)
}

/// Resumes threads until all have ended, none can go on, or there is a fault.
///
/// # Safety
/// `block` is the current block, and nobody holds a reference to it.
unsafe fn schedule(block: *mut Block, threads: &mut [Option<Thread>]) {
    // SAFETY: the caller's; each use ends before a thread runs.
    while let Some(next) = unsafe { next_thread(block) } {
        let Some(thread) = threads[next].as_mut() else {
            continue;
        };
        trap::arm(thread.trap_handler());
        let result = thread.resume(());
        if let CoroutineResult::Return(()) = result {
            if let Some(thread) = threads[next].take() {
                lanes::recycle(thread);
            }
            // SAFETY: as above.
            unsafe { thread_ended(&mut *block) };
        }
    }
}

/// The next thread to run, if the block can go on.
unsafe fn next_thread(block: *mut Block) -> Option<usize> {
    // SAFETY: the caller's: nobody else refers to the block just now.
    let block = unsafe { &mut *block };
    if block.fault.is_some() {
        return None;
    }
    let next = block.ready.pop_front();
    block.current = next.unwrap_or(block.current);
    next
}

fn thread_ended(block: &mut Block) {
    match trap::take() {
        Some(address) => {
            let detail = format!("address {address:#x}, {}", buffer::describe(address));
            block.note(FaultKind::GlobalAccess, None, detail);
        }
        None => block.exit(),
    }
}

/// What a block's run comes to.
fn conclude(block: &mut Block, run: Result<(), Box<dyn core::any::Any + Send>>) -> Result<(), Fault> {
    match run {
        Err(payload) if !payload.is::<Raised>() => block.note(FaultKind::Panic, None, message(payload.as_ref())),
        Ok(()) if block.fault.is_none() && block.live > 0 => block.stuck(),
        Ok(()) if block.kernel.pdl && !block.waited => {
            let detail = "is declared to wait for the launch before it, and no thread of the block does".to_owned();
            block.note(FaultKind::DependencyWait, None, detail);
        }
        _ => {}
    }
    block.ready.clear();
    block.fault.take().map_or(Ok(()), Err)
}

fn message(payload: &(dyn core::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panicked".to_owned())
}
