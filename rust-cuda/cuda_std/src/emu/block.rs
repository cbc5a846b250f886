//! The state of the block that runs, and its barriers.

use super::asynchronous::Barriers;
use super::clocks::Clocks;
use super::collective::Warp;
use super::context::{Place, suspend, with};
use super::fault::{Fault, FaultKind, raise};
use super::lanes::{Lane, Waiting};
use super::memory::SharedMemory;
use super::order::Order;
use crate::launch::{KernelInfo, LaunchConfig};
use core::panic::Location;
use std::collections::VecDeque;

/// Turns of polling without any progress after which a block counts as stuck.
const PATIENCE: u64 = 5_000;

pub(super) struct Block {
    pub kernel: &'static KernelInfo,
    pub index: [u32; 3],
    pub lanes: Vec<Lane>,
    pub warps: Vec<Warp>,
    /// The thread that runs.
    pub current: usize,
    pub ready: VecDeque<usize>,
    pub live: usize,
    pub shared: SharedMemory,
    pub clocks: Clocks,
    pub barriers: Barriers,
    pub fault: Option<Fault>,
    pub order: Order,
    /// A thread has called `pdl::wait`.
    pub waited: bool,
    pub ticks: u64,
    named: [Named; 16],
    polls: u64,
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

impl Block {
    pub fn new(kernel: &'static KernelInfo, config: &LaunchConfig, order: Order) -> Self {
        Self {
            kernel,
            index: [0; 3],
            lanes: Vec::new(),
            warps: Vec::new(),
            current: 0,
            ready: VecDeque::new(),
            live: 0,
            shared: SharedMemory::new(config.shared_bytes),
            clocks: Clocks::new(),
            barriers: Barriers::default(),
            fault: None,
            order,
            waited: false,
            ticks: 0,
            named: Default::default(),
            polls: 0,
        }
    }

    /// Sets the state for block `index` of the grid, every thread ready.
    pub fn start(&mut self, index: [u32; 3], config: &LaunchConfig) {
        let [x, y, _] = config.block;
        let threads = config.threads() as u32;
        let place = |linear: u32| Place {
            thread: [linear % x, linear / x % y, linear / (x * y)],
            block: index,
            block_dim: config.block,
            grid_dim: config.grid,
            linear,
        };
        self.index = index;
        self.lanes.clear();
        self.lanes.extend((0..threads).map(|linear| Lane::new(place(linear))));
        self.warps = (0..threads.div_ceil(32)).map(|w| Warp::new(threads - w * 32)).collect();
        self.live = threads as usize;
        self.clocks.restart();
        self.shared.restart();
        self.barriers = Barriers::default();
        self.named = Default::default();
        self.waited = false;
        self.polls = 0;
        self.enqueue_all(threads as usize);
    }

    fn enqueue_all(&mut self, threads: usize) {
        for warp in self.order.permutation(threads.div_ceil(32)) {
            let lanes = self.order.permutation(32);
            self.ready.extend(
                lanes
                    .into_iter()
                    .map(|lane| warp * 32 + lane)
                    .filter(|&thread| thread < threads),
            );
        }
    }

    pub fn lane(&self) -> &Lane {
        &self.lanes[self.current]
    }

    pub fn lane_mut(&mut self) -> &mut Lane {
        &mut self.lanes[self.current]
    }

    /// Notes the first fault.
    pub fn note(&mut self, kind: FaultKind, site: Option<&'static Location<'static>>, detail: String) {
        let thread = self.lanes.get(self.current).map(|lane| lane.place.thread);
        let fault = Fault {
            kernel: self.kernel.name,
            block: Some(self.index),
            thread,
            kind,
            detail,
            site,
        };
        self.fault.get_or_insert(fault);
    }

    /// Makes threads ready that have been waiting.
    pub fn wake(&mut self, threads: impl IntoIterator<Item = usize>) {
        self.polls = 0;
        for thread in threads {
            self.lanes[thread].waiting = None;
            self.ready.push_back(thread);
        }
    }

    /// Something happened that a polling thread may be waiting for.
    pub fn progress(&mut self) {
        self.polls = 0;
    }

    /// Puts the running thread at the end of the line.
    pub fn enqueue_poller(&mut self) {
        self.polls += 1;
        if self.polls > PATIENCE * self.live as u64 {
            let detail = "polls for something that no thread of its block will do; \
                          blocks run one after the other here, so none can wait for another";
            self.note(FaultKind::Deadlock, None, detail.to_owned());
        }
        self.ready.push_back(self.current);
    }

    /// The running thread has ended.
    pub fn exit(&mut self) {
        let thread = self.current;
        self.progress();
        self.live -= 1;
        self.lanes[thread].done = true;
        self.exit_warp(thread);
        if self.barrier_is_full(0) {
            self.release(0, None);
        }
    }

    /// All threads that wait, as an error: nothing will wake them.
    pub fn stuck(&mut self) {
        let mut places: Vec<(Waiting, Vec<usize>)> = Vec::new();
        for (thread, lane) in self.lanes.iter().enumerate() {
            let Some(waiting) = lane.waiting else {
                continue;
            };
            match places
                .iter_mut()
                .find(|(w, _)| w.what == waiting.what && w.site == waiting.site)
            {
                Some((_, threads)) => threads.push(thread),
                None => places.push((waiting, vec![thread])),
            }
        }
        let kind = if places.len() > 1 {
            FaultKind::Divergence
        } else {
            FaultKind::Deadlock
        };
        let parts = places
            .iter()
            .map(|(w, threads)| format!("{} wait in {} at {}", list(threads), w.what, w.site));
        let exited = self.lanes.len() - self.live;
        let detail = format!("{}; {exited} threads have ended", parts.collect::<Vec<_>>().join("; "));
        self.current = places.first().map_or(0, |(_, threads)| threads[0]);
        self.note(kind, None, detail);
    }

    fn barrier_is_full(&self, id: usize) -> bool {
        let barrier = &self.named[id];
        let here = barrier.waiting.len() + barrier.arrived.len();
        here > 0 && here >= barrier.expected.map_or(self.live, |count| count as usize)
    }

    /// Lets everybody at the barrier go; `last` is already running.
    fn release(&mut self, id: usize, last: Option<usize>) {
        let barrier = core::mem::take(&mut self.named[id]);
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
        let Some(barrier) = self.named.get_mut(id as usize) else {
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

/// Thread numbers, shortened.
fn list(threads: &[usize]) -> String {
    match threads {
        [one] => format!("thread {one}"),
        [first, .., last] if last - first + 1 == threads.len() => {
            format!("threads {first} to {last}")
        }
        _ => {
            let few: Vec<_> = threads.iter().take(8).map(usize::to_string).collect();
            let more = if threads.len() > 8 {
                format!(" and {} more", threads.len() - 8)
            } else {
                String::new()
            };
            format!("threads {}{more}", few.join(", "))
        }
    }
}

/// Comes to block barrier `id` and waits; `expected` threads, or all that live.
#[track_caller]
pub(crate) fn block_barrier(id: u32, expected: Option<u32>, predicate: bool) -> Met {
    let site = Location::caller();
    let met = with(|block| {
        block.come(id, expected, site)?;
        let (id, thread) = (id as usize, block.current);
        block.check_warp_is_together(id, site)?;
        block.named[id].waiting.push(thread);
        block.named[id].holds += u32::from(predicate);
        block.lanes[thread].waiting = Some(Waiting {
            what: "a barrier",
            site,
        });
        let full = block.barrier_is_full(id);
        if full {
            block.lanes[thread].waiting = None;
            block.release(id, Some(thread));
        }
        Ok(full)
    });
    match met {
        Ok(true) => {}
        Ok(false) => suspend(),
        Err(detail) => raise(FaultKind::Divergence, Some(site), detail),
    }
    let [threads, holds, ..] = with(|block| block.lane().result);
    Met { threads, holds }
}

impl Block {
    /// The lanes of a warp come to a barrier by the same call, and all threads of the block to barrier 0.
    fn check_warp_is_together(&self, id: usize, site: &'static Location<'static>) -> Result<(), String> {
        let warp = self.current / 32;
        let elsewhere = |&&thread: &&usize| {
            let other = self.lanes[thread].waiting.is_some_and(|w| w.site != site);
            other && (id == 0 || thread / 32 == warp)
        };
        match self.named[id].waiting.iter().find(elsewhere) {
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
    let result = with(|block| {
        block.come(id, Some(threads), site)?;
        let (id, thread) = (id as usize, block.current);
        block.named[id].arrived.push(thread);
        if block.barrier_is_full(id) {
            block.release(id, None);
        }
        Ok(())
    });
    if let Err(detail) = result {
        raise(FaultKind::Divergence, Some(site), detail);
    }
}
