//! Runs launches, cluster by cluster.

use super::cluster::Cluster;
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
        trap::install();
        let arguments = launch.arguments().pointers();
        let mut order = Order::new(self.seed);
        let config = launch.config();
        let clusters = order.permutation(config.blocks() as usize / config.cluster as usize);
        let mut cluster = Box::new(Cluster::new(launch.kernel(), config, order));
        for number in clusters {
            cluster.start(number as u32, config);
            run_cluster(&mut cluster, launch, arguments.as_ptr())?;
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

fn run_cluster(cluster: &mut Cluster, launch: &PreparedLaunch, arguments: *const *const c_void) -> Result<(), Fault> {
    let threads = 0..cluster.lanes.len();
    let spawned: Result<Vec<_>, _> = threads
        .map(|_| lanes::spawn(launch.kernel().emulate, arguments).map(Some))
        .collect();
    let mut threads = spawned.map_err(|error| {
        let detail = format!("no memory for the stacks of the threads: {error}; run fewer tests at once");
        fault_of(launch, FaultKind::Launch, detail)
    })?;
    let cluster: *mut Cluster = cluster;
    let current = context::enter(cluster);
    // SAFETY: `cluster` outlives the call and is reached through the current pointer only meanwhile.
    let run = catch_unwind(AssertUnwindSafe(|| unsafe { schedule(cluster, &mut threads) }));
    trap::disarm();
    // A fault leaves suspended threads: they unwind while their cluster is still current.
    drop(threads);
    drop(current);
    // SAFETY: no thread exists any more.
    conclude(unsafe { &mut *cluster }, run)
}

/// Resumes threads until all have ended, none can go on, or there is a fault.
///
/// # Safety
/// `cluster` is the current one, and nobody holds a reference to it.
unsafe fn schedule(cluster: *mut Cluster, threads: &mut [Option<Thread>]) {
    // SAFETY: the caller's; each use ends before a thread runs.
    while let Some(next) = unsafe { next_thread(cluster) } {
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
            unsafe { thread_ended(&mut *cluster) };
        }
    }
}

/// The next thread to run, if the cluster can go on.
unsafe fn next_thread(cluster: *mut Cluster) -> Option<usize> {
    // SAFETY: the caller's: nobody else refers to the cluster just now.
    let cluster = unsafe { &mut *cluster };
    if cluster.fault.is_some() {
        return None;
    }
    let next = cluster.ready.pop_front();
    cluster.current = next.unwrap_or(cluster.current);
    next
}

fn thread_ended(cluster: &mut Cluster) {
    match trap::take() {
        Some(address) => {
            let detail = format!("address {address:#x}, {}", buffer::describe(address));
            cluster.note(FaultKind::GlobalAccess, None, detail);
        }
        None => cluster.exit(),
    }
}

/// What a cluster's run comes to.
fn conclude(cluster: &mut Cluster, run: Result<(), Box<dyn core::any::Any + Send>>) -> Result<(), Fault> {
    match run {
        Err(payload) if !payload.is::<Raised>() => cluster.note(FaultKind::Panic, None, message(payload.as_ref())),
        Ok(()) if cluster.fault.is_none() && cluster.live > 0 => cluster.stuck(),
        Ok(()) if cluster.kernel.pdl && cluster.blocks.iter().any(|block| !block.waited) => {
            let rank = cluster.blocks.iter().position(|block| !block.waited);
            cluster.current = rank.unwrap_or(0) * cluster.threads;
            let detail = "is declared to wait for the launch before it, and no thread of the block does".to_owned();
            cluster.note(FaultKind::DependencyWait, None, detail);
        }
        _ => {}
    }
    cluster.ready.clear();
    cluster.fault.take().map_or(Ok(()), Err)
}

fn message(payload: &(dyn core::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panicked".to_owned())
}
