//! Asynchronous copies and the barriers in shared memory that count them.

use super::clocks::{Clock, Stamp};
use super::cluster::Cluster;
use super::context::{pause, with};
use super::fault::{FaultKind, raise};
use bytemuck::Pod;
use core::panic::Location;
use std::collections::{HashMap, VecDeque};

type Refusal = (FaultKind, String);

/// Bytes on their way to shared memory.
struct Copy {
    to: u32,
    from: Source,
    stamp: Stamp,
}

/// Where they come from.
enum Source {
    Global(*const u8, u32),
    Value(Vec<u8>),
}

impl Source {
    fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: the kernel vouched for the source when it asked for the copy.
            Self::Global(from, bytes) => unsafe { core::slice::from_raw_parts(*from, *bytes as usize) },
            Self::Value(bytes) => bytes,
        }
    }
}

impl Copy {
    /// Writes the bytes where they belong, in the running thread's block.
    fn land(&self, cluster: &mut Cluster) -> Result<(), Refusal> {
        let rank = cluster.rank();
        let shared = &mut cluster.blocks[rank].shared;
        shared.write_bulk(&cluster.clocks, self.stamp, self.to, self.from.bytes())
    }
}

/// A thread's `cp.async` copies.
#[derive(Default)]
pub(super) struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

fn check(to: u32, from: *const u8, bytes: u32, unit: u32, site: &'static Location<'static>) {
    if !to.is_multiple_of(unit) || !from.addr().is_multiple_of(unit as usize) || !bytes.is_multiple_of(unit) {
        let detail =
            format!("a copy of {bytes} bytes from {from:?} to shared address {to}: all are multiples of {unit}");
        raise(FaultKind::Misaligned, Some(site), detail);
    }
}

#[track_caller]
pub(crate) fn copy_async(to: u32, from: *const u8, bytes: u32) {
    check(to, from, bytes, bytes, Location::caller());
    with(|cluster| {
        let stamp = cluster.clocks.stamp(cluster.current);
        let from = Source::Global(from, bytes);
        cluster.lane_mut().copies.open.push(Copy { to, from, stamp });
    });
}

pub(crate) fn copy_commit() {
    with(|cluster| {
        let copies = &mut cluster.lane_mut().copies;
        let group = core::mem::take(&mut copies.open);
        copies.groups.push_back(group);
    });
}

#[track_caller]
pub(crate) fn copy_wait(under_way: usize) {
    let landed = with(|cluster| {
        while cluster.lane().copies.groups.len() > under_way {
            let group = cluster.lane_mut().copies.groups.pop_front().unwrap_or_default();
            // They count as written now: the thread has waited for them.
            let stamp = cluster.clocks.stamp(cluster.current);
            group
                .into_iter()
                .try_for_each(|copy| Copy { stamp, ..copy }.land(cluster))?;
        }
        Ok(())
    });
    or_raise(landed, Location::caller());
}

/// A block's barriers in shared memory, by address.
#[derive(Default)]
pub(super) struct Barriers(HashMap<u32, Barrier>);

struct Barrier {
    expected: u32,
    pending: u32,
    /// Bytes that are still to come.
    bytes: i64,
    parity: u32,
    /// What the block's own threads released to it.
    clock: Clock,
    /// What threads of other blocks released to it: for those who wait at the cluster's scope.
    remote: Clock,
    copies: Vec<Copy>,
    /// The thread that initialised it.
    maker: usize,
    /// The phase of the cluster's barrier behind which other blocks may use it.
    usable: Option<u32>,
}

impl Barrier {
    fn new(arrivals: u32, maker: usize) -> Self {
        Self {
            expected: arrivals,
            pending: arrivals,
            bytes: 0,
            parity: 0,
            clock: Clock::new(),
            remote: Clock::new(),
            copies: Vec::new(),
            maker,
            usable: None,
        }
    }

    /// What the block's own threads released to it, or those of other blocks.
    fn clock_of(&mut self, own: bool) -> &mut Clock {
        if own { &mut self.clock } else { &mut self.remote }
    }

    /// One arrival, and `bytes` more bytes to come; whether that ends the phase.
    fn arrive(&mut self, bytes: u32) -> Result<bool, Refusal> {
        if self.pending == 0 {
            let detail = format!("more than {} arrivals in one phase of an mbarrier", self.expected);
            return Err((FaultKind::Misuse, detail));
        }
        self.pending -= 1;
        self.bytes += i64::from(bytes);
        Ok(self.end_phase_if_complete())
    }

    fn end_phase_if_complete(&mut self) -> bool {
        let complete = self.pending == 0 && self.bytes == 0;
        if complete {
            self.parity ^= 1;
            self.pending = self.expected;
        }
        complete
    }
}

/// Who may see what a barrier's phase carries.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    Block,
    Cluster,
}

impl Cluster {
    fn barrier(&mut self, rank: usize, address: u32) -> Result<&mut Barrier, Refusal> {
        let missing = || {
            (
                FaultKind::Misuse,
                format!("no mbarrier was initialised at shared address {address}"),
            )
        };
        self.blocks[rank].barriers.0.get_mut(&address).ok_or_else(missing)
    }

    /// The running thread releases what it did to the phase of a barrier of block `rank`.
    fn release_to(&mut self, rank: usize, address: u32) -> Result<(), Refusal> {
        let (own, warp) = (rank == self.rank(), self.current / 32);
        let mut clock = core::mem::take(self.barrier(rank, address)?.clock_of(own));
        self.clocks.release(warp, &mut clock);
        *self.barrier(rank, address)?.clock_of(own) = clock;
        Ok(())
    }

    fn arrive(&mut self, address: u32, bytes: u32) -> Result<(), Refusal> {
        let rank = self.rank();
        self.release_to(rank, address)?;
        if self.barrier(rank, address)?.arrive(bytes)? {
            self.progress();
        }
        Ok(())
    }

    /// Lets the copies land that the barrier counts; whether the phase of this parity has ended.
    fn test(&mut self, address: u32, parity: u32, scope: Scope) -> Result<bool, Refusal> {
        let (rank, warp) = (self.rank(), self.current / 32);
        for copy in core::mem::take(&mut self.barrier(rank, address)?.copies) {
            copy.land(self)?;
            self.progress();
            let barrier = self.barrier(rank, address)?;
            barrier.bytes -= copy.from.bytes().len() as i64;
            barrier.end_phase_if_complete();
        }
        let barrier = self.barrier(rank, address)?;
        let ended = barrier.parity != parity & 1;
        if ended {
            let (clock, remote) = (barrier.clock.clone(), barrier.remote.clone());
            self.clocks.acquire(warp, &clock);
            if scope == Scope::Cluster {
                self.clocks.acquire(warp, &remote);
            }
        }
        Ok(ended)
    }

    /// Makes sure that the running thread may use the barrier at `address` of block `rank`.
    fn check_remote_barrier(&mut self, rank: usize, address: u32) -> Result<(), Refusal> {
        let usable = self.barrier(rank, address)?.usable;
        if usable.is_some_and(|phase| phase < self.lane().passed) {
            return Ok(());
        }
        // The object's bytes were written when it was initialised.
        self.blocks[rank]
            .shared
            .read(&self.clocks, self.current, address, &mut [0; 8])
    }
}

fn or_raise<T>(result: Result<T, Refusal>, site: &'static Location<'static>) -> T {
    result.unwrap_or_else(|(kind, detail)| raise(kind, Some(site), detail))
}

#[track_caller]
pub(crate) fn copy_bulk(to: u32, from: *const u8, bytes: u32, barrier: u32) {
    check(to, from, bytes, 16, Location::caller());
    let asked = with(|cluster| {
        let stamp = cluster.clocks.stamp(cluster.current);
        let (rank, from) = (cluster.rank(), Source::Global(from, bytes));
        cluster.release_to(rank, barrier)?;
        cluster.barrier(rank, barrier)?.copies.push(Copy { to, from, stamp });
        Ok(())
    });
    or_raise(asked, Location::caller());
}

#[track_caller]
pub(crate) fn mbarrier_init(address: u32, arrivals: u32) {
    // The object's bytes belong to the barrier; the write checks its place.
    super::memory::shared_write(address, 0u64);
    with(|cluster| {
        let barrier = Barrier::new(arrivals, cluster.current);
        cluster.block_mut().barriers.0.insert(address, barrier);
    });
}

/// What the running thread has initialised can be used by others once it has arrived at the cluster's barrier.
pub(crate) fn mbarrier_fence_init() {
    with(|cluster| {
        let (maker, phase) = (cluster.current, cluster.next_phase());
        let barriers = cluster.block_mut().barriers.0.values_mut();
        for barrier in barriers.filter(|barrier| barrier.maker == maker && barrier.usable.is_none()) {
            barrier.usable = Some(phase);
        }
    });
}

#[track_caller]
pub(crate) fn mbarrier_arrive(address: u32, bytes: u32) {
    or_raise(with(|cluster| cluster.arrive(address, bytes)), Location::caller());
}

#[track_caller]
pub(crate) fn mbarrier_arrive_remote(address: u32) {
    let arrived = with(|cluster| {
        let (rank, local) = cluster.visit(address)?;
        cluster.check_remote_barrier(rank, local)?;
        cluster.release_to(rank, local)?;
        if cluster.barrier(rank, local)?.arrive(0)? {
            cluster.progress();
        }
        Ok(())
    });
    or_raise(arrived, Location::caller());
}

/// A store to a block's shared memory that its barrier counts: it lands when somebody waits there.
#[track_caller]
pub(crate) fn remote_write_async<T: Pod>(address: u32, value: T, barrier: u32) {
    let sent = with(|cluster| {
        let ((rank, to), (there, barrier)) = (cluster.visit(address)?, cluster.visit(barrier)?);
        if rank != there {
            let detail = format!("st.async stores to block {rank} and signals a barrier of block {there}");
            return Err((FaultKind::Misuse, detail));
        }
        cluster.check_remote_barrier(rank, barrier)?;
        cluster.blocks[rank].shared.locate(to, size_of::<T>())?;
        let stamp = cluster.clocks.stamp(cluster.current);
        cluster.release_to(rank, barrier)?;
        let from = Source::Value(bytemuck::bytes_of(&value).to_vec());
        cluster.barrier(rank, barrier)?.copies.push(Copy { to, from, stamp });
        Ok(())
    });
    or_raise(sent, Location::caller());
}

#[track_caller]
pub(crate) fn mbarrier_test(address: u32, parity: u32) -> bool {
    poll(address, parity, Scope::Block)
}

#[track_caller]
pub(crate) fn mbarrier_test_cluster(address: u32, parity: u32) -> bool {
    poll(address, parity, Scope::Cluster)
}

#[track_caller]
fn poll(address: u32, parity: u32, scope: Scope) -> bool {
    let site = Location::caller();
    let test = || or_raise(with(|cluster| cluster.test(address, parity, scope)), site);
    if test() {
        return true;
    }
    pause();
    test()
}
