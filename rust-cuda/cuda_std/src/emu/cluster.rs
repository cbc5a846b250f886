//! The state of what runs at once: the blocks of a cluster or, without clusters, one block.
//!
//! Threads, and with them warps, are numbered through the cluster's blocks.

use super::block::Block;
use super::clocks::Clocks;
use super::collective::Warp;
use super::context::Place;
use super::fault::{Fault, FaultKind};
use super::lanes::{Lane, Waiting};
use super::order::Order;
use super::rendezvous::Rendezvous;
use crate::launch::{KernelInfo, LaunchConfig};
use core::panic::Location;
use std::collections::VecDeque;

/// Turns of polling without any progress after which a cluster counts as stuck.
const PATIENCE: u64 = 5_000;

pub(super) struct Cluster {
    pub kernel: &'static KernelInfo,
    pub blocks: Vec<Block>,
    pub lanes: Vec<Lane>,
    pub warps: Vec<Warp>,
    /// The thread that runs.
    pub current: usize,
    pub ready: VecDeque<usize>,
    pub live: usize,
    pub clocks: Clocks,
    pub rendezvous: Rendezvous,
    pub fault: Option<Fault>,
    pub order: Order,
    pub ticks: u64,
    /// Threads of a block.
    pub threads: usize,
    polls: u64,
}

impl Cluster {
    pub fn new(kernel: &'static KernelInfo, config: &LaunchConfig, order: Order) -> Self {
        let (blocks, threads) = (config.cluster as usize, config.threads() as usize);
        let warps = (blocks * threads).div_ceil(32);
        Self {
            kernel,
            blocks: (0..blocks).map(|_| Block::new(config.shared_bytes, warps)).collect(),
            lanes: Vec::new(),
            warps: Vec::new(),
            current: 0,
            ready: VecDeque::new(),
            live: 0,
            clocks: Clocks::new(blocks, threads),
            rendezvous: Rendezvous::default(),
            fault: None,
            order,
            ticks: 0,
            threads,
            polls: 0,
        }
    }

    /// Sets the state for cluster `number` of the grid, every thread ready.
    pub fn start(&mut self, number: u32, config: &LaunchConfig) {
        let [x, y, _] = config.block;
        let [along_x, along_y, _] = config.grid;
        let row = along_x / config.cluster;
        let threads = config.threads() as u32;
        self.lanes.clear();
        for (rank, block) in (0..config.cluster).zip(&mut self.blocks) {
            let index = [
                number % row * config.cluster + rank,
                number / row % along_y,
                number / (row * along_y),
            ];
            block.start(index, threads as usize);
            self.lanes.extend((0..threads).map(|linear| {
                Lane::new(Place {
                    thread: [linear % x, linear / x % y, linear / (x * y)],
                    block: index,
                    block_dim: config.block,
                    grid_dim: config.grid,
                    linear,
                })
            }));
        }
        self.live = self.lanes.len();
        let all = self.live as u32;
        self.warps = (0..all.div_ceil(32)).map(|w| Warp::new(all - w * 32)).collect();
        self.clocks.restart();
        self.rendezvous = Rendezvous::default();
        self.polls = 0;
        self.enqueue_all(self.live);
    }

    /// The rank of the block that the running thread is of.
    pub fn rank(&self) -> usize {
        self.current / self.threads
    }

    /// The running thread's block.
    pub fn block(&self) -> &Block {
        &self.blocks[self.current / self.threads]
    }

    /// The running thread's block.
    pub fn block_mut(&mut self) -> &mut Block {
        &mut self.blocks[self.current / self.threads]
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
            block: self.lanes.get(self.current).map(|lane| lane.place.block),
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
            let detail = "polls for something that no thread of its block or cluster will do; \
                          clusters run one after the other here, so none can wait for another";
            self.note(FaultKind::Deadlock, None, detail.to_owned());
        }
        self.ready.push_back(self.current);
    }

    /// The running thread has ended.
    pub fn exit(&mut self) {
        let thread = self.current;
        self.progress();
        self.live -= 1;
        self.block_mut().live -= 1;
        self.lanes[thread].done = true;
        self.exit_warp(thread);
        self.exit_barrier();
        self.exit_rendezvous();
        if self.block().live == 0 {
            self.end_visits();
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
        let detail = format!(
            "{}; {exited} threads have ended{}",
            parts.collect::<Vec<_>>().join("; "),
            self.numbering()
        );
        self.current = places.first().map_or(0, |(_, threads)| threads[0]);
        self.note(kind, None, detail);
    }

    /// How messages number threads, where that is not obvious.
    fn numbering(&self) -> String {
        match self.blocks.len() {
            1 => String::new(),
            n => format!(" (numbered through {n} blocks of {} threads)", self.threads),
        }
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
