//! Asynchronous copies and the barriers in shared memory that count them.

use super::block::Block;
use super::clocks::{Clock, Stamp, WARPS};
use super::context::{pause, with};
use super::fault::{FaultKind, raise};
use core::panic::Location;
use std::collections::{HashMap, VecDeque};

type Refusal = (FaultKind, String);

/// A copy that has been asked for.
struct Copy {
    to: u32,
    from: *const u8,
    bytes: u32,
    stamp: Stamp,
}

impl Copy {
    /// Writes the bytes where they belong.
    fn land(&self, block: &mut Block) -> Result<(), Refusal> {
        // SAFETY: the kernel vouched for the source when it asked for the copy.
        let bytes = unsafe { core::slice::from_raw_parts(self.from, self.bytes as usize) };
        block.shared.write_bulk(&block.clocks, self.stamp, self.to, bytes)
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
    with(|block| {
        let stamp = block.clocks.stamp(block.current);
        block.lane_mut().copies.open.push(Copy { to, from, bytes, stamp });
    });
}

pub(crate) fn copy_commit() {
    with(|block| {
        let copies = &mut block.lane_mut().copies;
        let group = core::mem::take(&mut copies.open);
        copies.groups.push_back(group);
    });
}

#[track_caller]
pub(crate) fn copy_wait(under_way: usize) {
    let landed = with(|block| {
        while block.lane().copies.groups.len() > under_way {
            let group = block.lane_mut().copies.groups.pop_front().unwrap_or_default();
            // They count as written now: the thread has waited for them.
            let stamp = block.clocks.stamp(block.current);
            group
                .into_iter()
                .try_for_each(|copy| Copy { stamp, ..copy }.land(block))?;
        }
        Ok(())
    });
    landed.unwrap_or_else(|(kind, detail)| raise(kind, Some(Location::caller()), detail));
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
    clock: Clock,
    copies: Vec<Copy>,
}

impl Barrier {
    fn end_phase_if_complete(&mut self) -> bool {
        let complete = self.pending == 0 && self.bytes == 0;
        if complete {
            self.parity ^= 1;
            self.pending = self.expected;
        }
        complete
    }
}

impl Block {
    fn barrier(&mut self, address: u32) -> Result<&mut Barrier, Refusal> {
        let missing = || {
            (
                FaultKind::Misuse,
                format!("no mbarrier was initialised at shared address {address}"),
            )
        };
        self.barriers.0.get_mut(&address).ok_or_else(missing)
    }

    /// The running thread releases what it did to the barrier's phase.
    fn release_to(&mut self, address: u32) -> Result<(), Refusal> {
        let mut clock = self.barrier(address)?.clock;
        self.clocks.release(self.current / 32, &mut clock);
        self.barrier(address)?.clock = clock;
        Ok(())
    }

    fn arrive(&mut self, address: u32, bytes: u32) -> Result<(), Refusal> {
        self.release_to(address)?;
        let barrier = self.barrier(address)?;
        if barrier.pending == 0 {
            return Err((
                FaultKind::Misuse,
                format!("more than {} arrivals in one phase of an mbarrier", barrier.expected),
            ));
        }
        barrier.pending -= 1;
        barrier.bytes += i64::from(bytes);
        if barrier.end_phase_if_complete() {
            self.progress();
        }
        Ok(())
    }

    /// Lets the copies land that the barrier counts; whether the phase of this parity has ended.
    fn test(&mut self, address: u32, parity: u32) -> Result<bool, Refusal> {
        for copy in core::mem::take(&mut self.barrier(address)?.copies) {
            copy.land(self)?;
            self.progress();
            let barrier = self.barrier(address)?;
            barrier.bytes -= i64::from(copy.bytes);
            barrier.end_phase_if_complete();
        }
        let barrier = self.barrier(address)?;
        let (ended, clock) = (barrier.parity != parity & 1, barrier.clock);
        if ended {
            self.clocks.acquire(self.current / 32, &clock);
        }
        Ok(ended)
    }
}

#[track_caller]
pub(crate) fn copy_bulk(to: u32, from: *const u8, bytes: u32, barrier: u32) {
    check(to, from, bytes, 16, Location::caller());
    let asked = with(|block| {
        let stamp = block.clocks.stamp(block.current);
        block.release_to(barrier)?;
        block.barrier(barrier)?.copies.push(Copy { to, from, bytes, stamp });
        Ok(())
    });
    asked.unwrap_or_else(|(kind, detail)| raise(kind, Some(Location::caller()), detail));
}

#[track_caller]
pub(crate) fn mbarrier_init(address: u32, arrivals: u32) {
    // The object's bytes belong to the barrier; the write checks its place.
    super::memory::shared_write(address, 0u64);
    let barrier = Barrier {
        expected: arrivals,
        pending: arrivals,
        bytes: 0,
        parity: 0,
        clock: [0; WARPS],
        copies: Vec::new(),
    };
    with(|block| block.barriers.0.insert(address, barrier));
}

#[track_caller]
pub(crate) fn mbarrier_arrive(address: u32, bytes: u32) {
    with(|block| block.arrive(address, bytes))
        .unwrap_or_else(|(kind, detail)| raise(kind, Some(Location::caller()), detail));
}

#[track_caller]
pub(crate) fn mbarrier_test(address: u32, parity: u32) -> bool {
    let test = || with(|block| block.test(address, parity));
    let or_raise =
        |r: Result<bool, Refusal>| r.unwrap_or_else(|(kind, detail)| raise(kind, Some(Location::caller()), detail));
    if or_raise(test()) {
        return true;
    }
    pause();
    or_raise(test())
}
