//! The barrier of a cluster: threads arrive, and wait later.

use super::clocks::Clock;
use super::cluster::Cluster;
use super::collective::{Collective, collective_all};
use super::context::{suspend, with};
use super::fault::{FaultKind, raise};
use super::lanes::Waiting;
use core::panic::Location;

type Refusal = (FaultKind, String);

/// The barrier's state.
#[derive(Default)]
pub(super) struct Rendezvous {
    /// Phases that have ended.
    phase: u32,
    /// Threads that have arrived in the phase under way.
    arrived: usize,
    /// What they released.
    clock: Clock,
    /// What the threads of the last phase released.
    last: Clock,
    waiting: Vec<usize>,
}

impl Cluster {
    fn arrive_cluster(&mut self, release: bool) -> Result<(), Refusal> {
        let phase = self.rendezvous.phase;
        if self.lane().arrived.is_some() {
            let detail = "arrives at the cluster's barrier again without having waited";
            return Err((FaultKind::Misuse, detail.to_owned()));
        }
        self.check_all_can_arrive(phase)?;
        if release {
            self.clocks.release(self.current / 32, &mut self.rendezvous.clock);
        }
        self.lane_mut().arrived = Some(phase);
        self.rendezvous.arrived += 1;
        if self.rendezvous.arrived == self.lanes.len() {
            self.end_phase();
        }
        Ok(())
    }

    /// A thread that has ended without arriving in this phase never will.
    fn check_all_can_arrive(&self, phase: u32) -> Result<(), Refusal> {
        if self.live == self.lanes.len() {
            return Ok(());
        }
        let never = |lane: &&super::lanes::Lane| lane.done && lane.arrived != Some(phase);
        match self.lanes.iter().find(never) {
            None => Ok(()),
            Some(lane) => {
                let (thread, block) = (lane.place.thread, lane.place.block);
                let detail = format!(
                    "comes to the cluster's barrier, to which thread {thread:?} of block {block:?}, which has ended, \
                     does not come"
                );
                Err((FaultKind::Divergence, detail))
            }
        }
    }

    /// The phase at which the running thread arrives next.
    pub fn next_phase(&self) -> u32 {
        self.lane().arrived.map_or(self.rendezvous.phase, |phase| phase + 1)
    }

    fn end_phase(&mut self) {
        let rendezvous = &mut self.rendezvous;
        rendezvous.phase += 1;
        rendezvous.arrived = 0;
        rendezvous.last = core::mem::take(&mut rendezvous.clock);
        let mut waiting = core::mem::take(&mut rendezvous.waiting);
        let flip = self.order.flip(self.lanes.len().next_power_of_two());
        waiting.sort_unstable_by_key(|&thread| thread ^ flip);
        self.wake(waiting);
    }

    /// The running thread comes to wait. Whether it can go on at once.
    fn wait_cluster(&mut self, site: &'static Location<'static>) -> Result<bool, Refusal> {
        let Some(phase) = self.lane().arrived else {
            let detail = "waits at the cluster's barrier without having arrived";
            return Err((FaultKind::Misuse, detail.to_owned()));
        };
        let ended = phase != self.rendezvous.phase;
        if !ended {
            self.rendezvous.waiting.push(self.current);
            self.lane_mut().waiting = Some(Waiting {
                what: "cluster::wait",
                site,
            });
        }
        Ok(ended)
    }

    fn pass_cluster(&mut self) {
        let lane = self.lane_mut();
        lane.passed += u32::from(lane.arrived.take().is_some());
        self.clocks.acquire(self.current / 32, &self.rendezvous.last);
    }

    /// The running thread has ended: no phase may be waiting for it.
    pub fn exit_rendezvous(&mut self) {
        let Rendezvous { phase, arrived, .. } = self.rendezvous;
        if arrived > 0 && self.lane().arrived != Some(phase) {
            let detail = format!("ends while {arrived} threads have arrived at the cluster's barrier, and it has not");
            self.note(FaultKind::Divergence, None, detail);
        }
    }
}

#[track_caller]
pub(crate) fn cluster_arrive(release: bool) {
    collective_all(Collective::ClusterArrive, &[]);
    with(|cluster| cluster.arrive_cluster(release))
        .unwrap_or_else(|(kind, detail)| raise(kind, Some(Location::caller()), detail));
}

#[track_caller]
pub(crate) fn cluster_wait() {
    let site = Location::caller();
    collective_all(Collective::ClusterWait, &[]);
    match with(|cluster| cluster.wait_cluster(site)) {
        Ok(true) => {}
        Ok(false) => suspend(),
        Err((kind, detail)) => raise(kind, Some(site), detail),
    }
    with(Cluster::pass_cluster);
}
