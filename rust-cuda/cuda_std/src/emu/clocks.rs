//! What happens before what, at the grain of warps.
//!
//! Each warp counts epochs; an epoch ends where the warp releases what it did (a barrier, an arrival).
//! `seen[w][v]` is the last epoch of warp v that warp w has acquired. Lanes of one warp are ordered by
//! the warp's own count of `bar.warp.sync` and block barriers.

/// For each warp, the last epoch acquired; short or empty where those that follow have none.
pub(super) type Clock = Vec<u32>;

/// Who accessed a byte, and when.
#[derive(Clone, Copy, Default)]
pub(super) struct Stamp {
    epoch: u32,
    sync: u32,
    thread: u16,
}

pub(super) struct Clocks {
    epoch: Clock,
    sync: Vec<u32>,
    seen: Vec<Clock>,
    /// Stamps of earlier epochs belong to an earlier cluster.
    first: u32,
    /// Threads of a block.
    threads: usize,
    blocks: usize,
}

impl Clocks {
    /// For so many blocks of so many threads.
    pub fn new(blocks: usize, threads: usize) -> Self {
        let warps = (blocks * threads).div_ceil(32);
        Self {
            epoch: vec![1; warps],
            sync: vec![0; warps],
            seen: vec![vec![0; warps]; warps],
            first: 1,
            threads,
            blocks,
        }
    }

    /// Begins a new cluster: stamps from before count as none.
    pub fn restart(&mut self) {
        self.first = self.epoch.iter().max().copied().unwrap_or(0) + 1;
        self.epoch.fill(self.first);
        self.seen.iter_mut().for_each(|seen| seen.fill(self.first - 1));
    }

    pub fn stamp(&self, thread: usize) -> Stamp {
        let warp = thread / 32;
        Stamp {
            epoch: self.epoch[warp],
            sync: self.sync[warp],
            thread: thread as u16,
        }
    }

    /// Whether the stamp is of this cluster's.
    pub fn is_set(&self, stamp: Stamp) -> bool {
        stamp.epoch >= self.first
    }

    /// Whether what the stamp marks happens before what `thread` does now.
    pub fn ordered(&self, stamp: Stamp, thread: usize) -> bool {
        let (theirs, ours) = (usize::from(stamp.thread) / 32, thread / 32);
        !self.is_set(stamp)
            || usize::from(stamp.thread) == thread
            || (theirs == ours && stamp.sync < self.sync[ours])
            || stamp.epoch <= self.seen[ours][theirs]
    }

    /// The thread that a stamp names, in words.
    pub fn name(&self, stamp: Stamp) -> String {
        match self.blocks {
            1 => format!("thread {}", stamp.thread()),
            _ => format!(
                "thread {} of block {} of the cluster",
                stamp.thread() % self.threads,
                stamp.thread() / self.threads
            ),
        }
    }

    /// Whether a warp has acquired anything that warp `other` released.
    pub fn has_seen(&self, warp: usize, other: usize) -> bool {
        self.seen[warp][other] >= self.first
    }

    /// The lanes of a warp met.
    pub fn warp_sync(&mut self, warp: usize) {
        self.sync[warp] += 1;
    }

    /// The warps met: each has seen all that each had.
    pub fn meet(&mut self, warps: impl Iterator<Item = usize> + Clone) {
        let mut all = Clock::new();
        for warp in warps.clone() {
            self.release(warp, &mut all);
        }
        for warp in warps {
            self.acquire(warp, &all);
            self.warp_sync(warp);
        }
    }

    /// Adds to `clock` all that the warp has done and seen, and begins its next epoch.
    pub fn release(&mut self, warp: usize, clock: &mut Clock) {
        clock.resize(self.epoch.len(), 0);
        join(clock, &self.seen[warp]);
        clock[warp] = clock[warp].max(self.epoch[warp]);
        self.epoch[warp] += 1;
    }

    /// The warp has seen all of `clock`.
    pub fn acquire(&mut self, warp: usize, clock: &Clock) {
        join(&mut self.seen[warp], clock);
    }
}

impl Stamp {
    /// The thread it names.
    pub fn thread(self) -> usize {
        usize::from(self.thread)
    }
}

fn join(into: &mut Clock, from: &Clock) {
    for (a, b) in into.iter_mut().zip(from) {
        *a = (*a).max(*b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warp_sync_orders_its_own_lanes_only() {
        let mut clocks = Clocks::new(1, 96);
        clocks.restart();
        let stamp = clocks.stamp(3);
        assert!(clocks.ordered(stamp, 3));
        assert!(!clocks.ordered(stamp, 4));
        clocks.warp_sync(0);
        assert!(clocks.ordered(stamp, 4));
        assert!(!clocks.ordered(stamp, 40));
    }

    #[test]
    fn a_meeting_orders_those_who_met() {
        let mut clocks = Clocks::new(1, 96);
        clocks.restart();
        let stamp = clocks.stamp(3);
        clocks.meet([0, 1].into_iter());
        assert!(clocks.ordered(stamp, 40));
        assert!(!clocks.ordered(stamp, 70));
        clocks.meet([1, 2].into_iter());
        assert!(clocks.ordered(stamp, 70), "passed on by warp 1");
        assert!(!clocks.ordered(clocks.stamp(3), 70), "what came after the meeting");
    }

    #[test]
    fn a_release_covers_what_came_before_it() {
        let mut clocks = Clocks::new(1, 96);
        clocks.restart();
        let (before, mut clock) = (clocks.stamp(0), Clock::new());
        clocks.release(0, &mut clock);
        let after = clocks.stamp(0);
        clocks.acquire(1, &clock);
        assert!(clocks.ordered(before, 32));
        assert!(!clocks.ordered(after, 32));
    }

    #[test]
    fn a_new_cluster_forgets() {
        let mut clocks = Clocks::new(1, 96);
        clocks.restart();
        let stamp = clocks.stamp(3);
        clocks.restart();
        assert!(!clocks.is_set(stamp));
        assert!(clocks.ordered(stamp, 40));
    }
}
