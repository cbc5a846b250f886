//! Operations of a warp: lanes bring values, meet, and take results.

use super::cluster::Cluster;
use super::context::{suspend, with};
use super::fault::{FaultKind, raise};
use super::lanes::{Lane, Waiting};
use core::panic::Location;

/// What the lanes meet for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collective {
    Sync,
    ClusterArrive,
    ClusterWait,
    Shuffle(Shuffle),
    Ballot,
    All,
    Any,
    MatchAny,
    Reduce(Reduce),
    MmaS8,
    MmaU8S8,
    MmaBf16,
    MmaF16,
    /// `ldmatrix` of so many matrices, transposed or not.
    Matrices(u8, bool),
}

/// How a shuffle finds the lane it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Xor,
    Down,
    Up,
    Idx,
}

/// What `redux` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduce {
    Add,
    MinU,
    MaxU,
    MinS,
    MaxS,
    And,
    Or,
    Xor,
}

impl Collective {
    /// Every lane of the warp must take part.
    fn needs_all(self) -> bool {
        matches!(
            self,
            Self::ClusterArrive
                | Self::ClusterWait
                | Self::MmaS8
                | Self::MmaU8S8
                | Self::MmaBf16
                | Self::MmaF16
                | Self::Matrices(..)
        )
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync_warp",
            Self::ClusterArrive => "cluster::arrive",
            Self::ClusterWait => "cluster::wait",
            Self::Shuffle(_) => "a shuffle",
            Self::Ballot | Self::All | Self::Any => "a vote",
            Self::MatchAny => "a match",
            Self::Reduce(_) => "a reduction",
            Self::MmaS8 | Self::MmaU8S8 | Self::MmaBf16 | Self::MmaF16 => "an mma",
            Self::Matrices(..) => "ldmatrix",
        }
    }
}

/// Lanes under way to a meeting.
struct Pending {
    kind: Collective,
    mask: u32,
    site: &'static Location<'static>,
    arrived: u32,
}

pub(super) struct Warp {
    /// Lanes that exist and have not exited.
    pub live: u32,
    pending: Vec<Pending>,
}

impl Warp {
    /// A warp of the first `lanes` lanes (all 32 where there are more).
    pub fn new(lanes: u32) -> Self {
        let live = if lanes >= 32 { u32::MAX } else { (1 << lanes) - 1 };
        Self {
            live,
            pending: Vec::new(),
        }
    }
}

/// Brings `input`, meets the live lanes of `mask` in the same operation at the same place, and takes the result.
#[track_caller]
pub(crate) fn collective(kind: Collective, mask: u32, input: &[u32]) -> [u32; 4] {
    let site = Location::caller();
    match with(|cluster| cluster.meet(kind, mask, site, input)) {
        Ok(true) => {}
        Ok(false) => suspend(),
        Err((kind, detail)) => raise(kind, Some(site), detail),
    }
    with(|cluster| cluster.lane().result)
}

/// [`collective`] of all 32 lanes, none of which may have exited.
#[track_caller]
pub(crate) fn collective_all(kind: Collective, input: &[u32]) -> [u32; 4] {
    let live = super::context::live_lanes();
    if live != u32::MAX {
        let (kind, detail) = missing(kind, live);
        raise(kind, Some(Location::caller()), detail);
    }
    collective(kind, u32::MAX, input)
}

type Refusal = (FaultKind, String);

fn missing(kind: Collective, lanes: u32) -> Refusal {
    let detail = format!("{} needs all 32 lanes; there are {lanes:#010x}", kind.name());
    (FaultKind::Divergence, detail)
}

impl Cluster {
    /// The running lane comes to a collective operation. Whether it is the last to come.
    fn meet(
        &mut self,
        kind: Collective,
        mask: u32,
        site: &'static Location<'static>,
        input: &[u32],
    ) -> Result<bool, Refusal> {
        let (warp, lane) = (self.current / 32, self.current % 32);
        if mask & (1 << lane) == 0 {
            return Err((
                FaultKind::Misuse,
                format!("lane {lane} calls {} for lanes {mask:#010x}", kind.name()),
            ));
        }
        self.lane_mut().input[..input.len()].copy_from_slice(input);
        let at = self.join(warp, kind, mask, site)?;
        self.warps[warp].pending[at].arrived |= 1 << lane;
        if !self.complete_if_full(warp, at)? {
            self.lane_mut().waiting = Some(Waiting {
                what: kind.name(),
                site,
            });
            return Ok(false);
        }
        Ok(true)
    }

    /// The meeting that the running lane comes to: one under way, or a new one.
    fn join(
        &mut self,
        warp: usize,
        kind: Collective,
        mask: u32,
        site: &'static Location<'static>,
    ) -> Result<usize, Refusal> {
        let pending = &mut self.warps[warp].pending;
        match pending.iter().position(|p| p.mask & mask != 0) {
            Some(at) if pending[at].mask == mask && pending[at].kind == kind && pending[at].site == site => Ok(at),
            Some(at) => {
                let Pending {
                    kind: other,
                    mask: theirs,
                    site: there,
                    arrived,
                } = &pending[at];
                let detail = format!(
                    "calls {} for lanes {mask:#010x} while lanes {arrived:#010x} wait in {} for {theirs:#010x} at {there}",
                    kind.name(),
                    other.name(),
                );
                Err((FaultKind::Divergence, detail))
            }
            None => {
                pending.push(Pending {
                    kind,
                    mask,
                    site,
                    arrived: 0,
                });
                Ok(pending.len() - 1)
            }
        }
    }

    /// Ends a meeting for which all have come; the others become ready.
    fn complete_if_full(&mut self, warp: usize, at: usize) -> Result<bool, Refusal> {
        let live = self.warps[warp].live;
        let Pending {
            kind,
            mask,
            site,
            arrived,
        } = self.warps[warp].pending[at];
        if arrived != mask & live {
            return Ok(false);
        }
        self.warps[warp].pending.swap_remove(at);
        if kind.needs_all() && arrived != u32::MAX {
            return Err(missing(kind, arrived));
        }
        let base = warp * 32;
        if kind == Collective::Sync {
            self.clocks.warp_sync(warp);
        }
        if let Collective::Matrices(count, transposed) = kind {
            self.deliver_matrices(base, usize::from(count), transposed, site)?;
        } else {
            let end = self.lanes.len().min(base + 32);
            complete(kind, arrived, &mut self.lanes[base..end])?;
        }
        let current = self.current;
        let flip = self.order.flip(32);
        let lanes = (0..32).map(|i| i ^ flip).filter(|lane| arrived & (1 << lane) != 0);
        self.wake(lanes.map(|lane| base + lane).filter(|&thread| thread != current));
        Ok(true)
    }

    /// A lane has exited: meetings that waited for it only are complete.
    pub fn exit_warp(&mut self, thread: usize) {
        let warp = thread / 32;
        self.warps[warp].live &= !(1 << (thread % 32));
        let mut at = 0;
        while at < self.warps[warp].pending.len() {
            match self.complete_if_full(warp, at) {
                Ok(true) => {}
                Ok(false) => at += 1,
                Err((kind, detail)) => {
                    let site = self.warps[warp].pending.first().map(|p| p.site);
                    return self.note(kind, site, detail);
                }
            }
        }
    }
}

/// Gives every lane of `mask` its result.
fn complete(kind: Collective, mask: u32, lanes: &mut [Lane]) -> Result<(), Refusal> {
    let bits = |lanes: &[Lane], mask| {
        members(mask)
            .filter(|&l| lanes[l].input[0] != 0)
            .fold(0, |m, l| m | 1 << l)
    };
    let same = match kind {
        Collective::Sync | Collective::ClusterArrive | Collective::ClusterWait => return Ok(()),
        Collective::Shuffle(mode) => return shuffle(mode, mask, lanes),
        Collective::MatchAny => return match_any(mask, lanes),
        Collective::Ballot => bits(lanes, mask),
        Collective::All => u32::from(bits(lanes, mask) == mask),
        Collective::Any => u32::from(bits(lanes, mask) != 0),
        Collective::Reduce(how) => reduce(how, members(mask).map(|lane| lanes[lane].input[0])),
        mma => return super::matrix::multiply(mma, lanes),
    };
    members(mask).for_each(|lane| lanes[lane].result[0] = same);
    Ok(())
}

fn members(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask & (1 << lane) != 0)
}

fn match_any(mask: u32, lanes: &mut [Lane]) -> Result<(), Refusal> {
    for lane in members(mask) {
        let value = lanes[lane].input[0];
        lanes[lane].result[0] = members(mask)
            .filter(|&l| lanes[l].input[0] == value)
            .fold(0, |m, l| m | 1 << l);
    }
    Ok(())
}

fn reduce(how: Reduce, values: impl Iterator<Item = u32>) -> u32 {
    let signed = |f: fn(i32, i32) -> i32| move |a: u32, b: u32| f(a as i32, b as i32) as u32;
    let result = match how {
        Reduce::Add => values.reduce(u32::wrapping_add),
        Reduce::MinU => values.reduce(u32::min),
        Reduce::MaxU => values.reduce(u32::max),
        Reduce::MinS => values.reduce(signed(i32::min)),
        Reduce::MaxS => values.reduce(signed(i32::max)),
        Reduce::And => values.reduce(|a, b| a & b),
        Reduce::Or => values.reduce(|a, b| a | b),
        Reduce::Xor => values.reduce(|a, b| a ^ b),
    };
    result.unwrap_or(0)
}

fn shuffle(mode: Shuffle, mask: u32, lanes: &mut [Lane]) -> Result<(), Refusal> {
    for lane in members(mask) {
        let [_, operand, width, ..] = lanes[lane].input;
        if !width.is_power_of_two() || width > 32 {
            return Err((
                FaultKind::Misuse,
                format!("a shuffle's width is a power of two up to 32, not {width}"),
            ));
        }
        let from = source(mode, lane as u32, operand, width) as usize;
        if mask & (1 << from) == 0 {
            return Err((
                FaultKind::Misuse,
                format!("lane {lane} reads lane {from}, which takes no part in the shuffle"),
            ));
        }
        lanes[lane].result[0] = lanes[from].input[0];
    }
    Ok(())
}

/// The lane that a shuffle reads: within its segment, and itself where that ends.
fn source(mode: Shuffle, lane: u32, operand: u32, width: u32) -> u32 {
    let (first, end) = (lane / width * width, lane / width * width + width);
    let operand = operand & 31;
    let from = match mode {
        Shuffle::Xor => lane ^ operand,
        Shuffle::Down => lane + operand,
        Shuffle::Up => {
            return if lane >= first + operand { lane - operand } else { lane };
        }
        Shuffle::Idx => return first + operand % width,
    };
    if from < end { from } else { lane }
}
