//! A block's own state, and its barriers.

use super::asynchronous::Barriers;
use super::clocks::Stamp;
use super::cluster::Cluster;
use super::context::{suspend, with};
use super::fault::{FaultKind, raise};
use super::lanes::Waiting;
use super::memory::SharedMemory;
use core::panic::Location;

/// What each block of a cluster has for itself.
pub(super) struct Block {
    pub index: [u32; 3],
    pub live: usize,
    pub shared: SharedMemory,
    pub barriers: Barriers,
    /// A thread has called `pdl::wait`.
    pub waited: bool,
    /// For each warp of the cluster, its last access from another block to this one's shared memory.
    pub visits: Vec<Stamp>,
    named: [Named; 16],
}

impl Block {
    pub fn new(shared_bytes: u32, warps: usize) -> Self {
        Self {
            index: [0; 3],
            live: 0,
            shared: SharedMemory::new(shared_bytes),
            barriers: Barriers::default(),
            waited: false,
            visits: vec![Stamp::default(); warps],
            named: Default::default(),
        }
    }

    /// Sets the state for block `index` of the grid, all `threads` alive.
    pub fn start(&mut self, index: [u32; 3], threads: usize) {
        self.index = index;
        self.live = threads;
        self.shared.restart();
        self.barriers = Barriers::default();
        self.waited = false;
        self.visits.fill(Stamp::default());
        self.named = Default::default();
    }
}

/// A block barrier.
#[derive(Clone, Default)]
struct Named {
    waiting: Vec<usize>,
    arrived: Vec<usize>,
    expected: Option<u32>,
    site: Option<&'static Location<'static>>,
    holds: u32,
}

/// What a barrier tells those who met.
#[derive(Clone, Copy)]
pub(crate) struct Met {
    /// Threads that met.
    pub threads: u32,
    /// Those of them whose predicate holds.
    pub holds: u32,
}

impl Cluster {
    /// The running thread has ended: its block's barrier may have waited for it only.
    pub fn exit_barrier(&mut self) {
        if self.barrier_is_full(0) {
            self.release(0, None);
        }
    }

    fn barrier_is_full(&self, id: usize) -> bool {
        let block = self.block();
        let barrier = &block.named[id];
        let here = barrier.waiting.len() + barrier.arrived.len();
        here > 0 && here >= barrier.expected.map_or(block.live, |count| count as usize)
    }

    /// Lets everybody at the barrier go; `last` is already running.
    fn release(&mut self, id: usize, last: Option<usize>) {
        let barrier = core::mem::take(&mut self.block_mut().named[id]);
        let everybody = barrier.waiting.iter().chain(&barrier.arrived);
        let met = [everybody.clone().count() as u32, barrier.holds, 0, 0];
        let mut warps: Vec<usize> = everybody.map(|thread| thread / 32).collect();
        warps.sort_unstable();
        warps.dedup();
        self.clocks.meet(warps.into_iter());
        for &thread in &barrier.waiting {
            self.lanes[thread].result = met;
        }
        let flip = self.order.flip(self.lanes.len().next_power_of_two());
        let woken = self.in_order(barrier.waiting, flip);
        self.wake(woken.into_iter().filter(|&thread| Some(thread) != last));
    }

    fn in_order(&self, mut threads: Vec<usize>, flip: usize) -> Vec<usize> {
        threads.sort_unstable_by_key(|&thread| thread ^ flip);
        threads
    }

    /// The running thread comes to a barrier. An error says why it may not.
    fn come(&mut self, id: u32, expected: Option<u32>, site: &'static Location<'static>) -> Result<(), String> {
        let Some(barrier) = self.block_mut().named.get_mut(id as usize) else {
            return Err(format!("a block has barriers 0 to 15, not {id}"));
        };
        if expected.is_some_and(|count| count == 0 || count % 32 != 0) {
            return Err(format!(
                "a barrier counts whole warps, not {} threads",
                expected.unwrap_or(0)
            ));
        }
        if barrier.waiting.is_empty() && barrier.arrived.is_empty() {
            (barrier.expected, barrier.site) = (expected, Some(site));
        }
        if barrier.expected != expected {
            return Err(format!(
                "barrier {id} is used for {:?} and for {expected:?} threads at once",
                barrier.expected
            ));
        }
        Ok(())
    }
}

/// Comes to block barrier `id` and waits; `expected` threads, or all that live.
#[track_caller]
pub(crate) fn block_barrier(id: u32, expected: Option<u32>, predicate: bool) -> Met {
    let site = Location::caller();
    let met = with(|cluster| {
        cluster.come(id, expected, site)?;
        let (id, thread) = (id as usize, cluster.current);
        cluster.check_warp_is_together(id, site)?;
        cluster.block_mut().named[id].waiting.push(thread);
        cluster.block_mut().named[id].holds += u32::from(predicate);
        cluster.lanes[thread].waiting = Some(Waiting {
            what: "a barrier",
            site,
        });
        let full = cluster.barrier_is_full(id);
        if full {
            cluster.lanes[thread].waiting = None;
            cluster.release(id, Some(thread));
        }
        Ok(full)
    });
    match met {
        Ok(true) => {}
        Ok(false) => suspend(),
        Err(detail) => raise(FaultKind::Divergence, Some(site), detail),
    }
    let [threads, holds, ..] = with(|cluster| cluster.lane().result);
    Met { threads, holds }
}

impl Cluster {
    /// The lanes of a warp come to a barrier by the same call, and all threads of the block to barrier 0.
    fn check_warp_is_together(&self, id: usize, site: &'static Location<'static>) -> Result<(), String> {
        let warp = self.current / 32;
        let elsewhere = |&&thread: &&usize| {
            let other = self.lanes[thread].waiting.is_some_and(|w| w.site != site);
            other && (id == 0 || thread / 32 == warp)
        };
        match self.block().named[id].waiting.iter().find(elsewhere) {
            None => Ok(()),
            Some(&thread) => {
                let there = self.lanes[thread].waiting.map_or(site, |w| w.site);
                Err(format!(
                    "comes to a barrier while thread {thread} waits at another, {there}"
                ))
            }
        }
    }
}

/// Arrives at block barrier `id` without waiting.
#[track_caller]
pub(crate) fn block_barrier_arrive(id: u32, threads: u32) {
    let site = Location::caller();
    let result = with(|cluster| {
        cluster.come(id, Some(threads), site)?;
        let (id, thread) = (id as usize, cluster.current);
        cluster.block_mut().named[id].arrived.push(thread);
        if cluster.barrier_is_full(id) {
            cluster.release(id, None);
        }
        Ok(())
    });
    if let Err(detail) = result {
        raise(FaultKind::Divergence, Some(site), detail);
    }
}
