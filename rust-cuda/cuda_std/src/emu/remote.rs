//! Shared memory of the other blocks of a cluster.
//!
//! An address in the cluster's shared memory is one in a block's, with the block's rank above it.

use super::cluster::Cluster;
use super::context::with;
use super::fault::{FaultKind, raise};
use bytemuck::Pod;
use core::panic::Location;

type Refusal = (FaultKind, String);

/// Set in every address of the cluster's shared memory: none is one of a block's.
const MARK: u32 = 1 << 31;
/// Where the rank begins.
const RANK_SHIFT: u32 = 24;
/// The address within the block.
const LOCAL: u32 = (1 << RANK_SHIFT) - 1;

pub(crate) fn cluster_rank() -> u32 {
    with(|cluster| cluster.rank() as u32)
}

pub(crate) fn cluster_size() -> u32 {
    with(|cluster| cluster.blocks.len() as u32)
}

#[track_caller]
pub(crate) fn cluster_map(address: u32, rank: u32) -> u32 {
    let size = cluster_size();
    if rank >= size {
        let detail = format!("block {rank} of a cluster of {size}");
        raise(FaultKind::RemoteAccess, Some(Location::caller()), detail);
    }
    MARK | rank << RANK_SHIFT | address
}

impl Cluster {
    /// Where an address in the cluster's shared memory lies, by rank and address there; notes that the running thread
    /// uses it. The other block must be known to run.
    pub fn visit(&mut self, address: u32) -> Result<(usize, u32), Refusal> {
        let (rank, local) = (((address & !MARK) >> RANK_SHIFT) as usize, address & LOCAL);
        if rank == self.rank() {
            return Ok((rank, local));
        }
        let refuse = |why: &str| {
            let detail = format!("shared memory of block {rank} of the cluster, which {why}");
            Err((FaultKind::RemoteAccess, detail))
        };
        let warp = self.current / 32;
        if self.blocks[rank].live == 0 {
            return refuse("has ended");
        }
        let known = self.lane().passed > 0 || self.warps_of(rank).any(|theirs| self.clocks.has_seen(warp, theirs));
        if !known {
            return refuse("no cluster barrier has shown to run");
        }
        self.blocks[rank].visits[warp] = self.clocks.stamp(self.current);
        Ok((rank, local))
    }

    /// The running thread was its block's last: what other blocks did with its shared memory must be over.
    pub fn end_visits(&mut self) {
        let rank = self.rank();
        let over = |visit| self.warps_of(rank).any(|warp| self.clocks.ordered(visit, warp * 32));
        let open = self.blocks[rank].visits.iter().find(|visit| !over(**visit));
        if let Some(&visit) = open {
            let detail = format!(
                "block {rank} of the cluster ends, and no barrier has shown that {} is done with its shared memory",
                self.clocks.name(visit)
            );
            self.note(FaultKind::RemoteAccess, None, detail);
        }
    }

    fn warps_of(&self, rank: usize) -> impl Iterator<Item = usize> + use<> {
        let warps = self.threads.div_ceil(32);
        rank * warps..(rank + 1) * warps
    }

    fn remote_access<R>(
        &mut self,
        address: u32,
        access: impl FnOnce(&mut Self, usize, u32) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let (rank, local) = self.visit(address)?;
        access(self, rank, local).map_err(|(kind, detail)| (kind, format!("in block {rank} of the cluster: {detail}")))
    }
}

#[track_caller]
pub(crate) fn remote_read<T: Pod>(address: u32) -> T {
    let mut value = T::zeroed();
    let into = bytemuck::bytes_of_mut(&mut value);
    let read = with(|cluster| {
        cluster.remote_access(address, |cluster, rank, local| {
            cluster.blocks[rank]
                .shared
                .read(&cluster.clocks, cluster.current, local, into)
        })
    });
    read.unwrap_or_else(|(kind, detail)| raise(kind, Some(Location::caller()), detail));
    value
}

#[track_caller]
pub(crate) fn remote_write<T: Pod>(address: u32, value: T) {
    let from = bytemuck::bytes_of(&value);
    let written = with(|cluster| {
        cluster.remote_access(address, |cluster, rank, local| {
            let stamp = cluster.clocks.stamp(cluster.current);
            cluster.blocks[rank].shared.write(&cluster.clocks, stamp, local, from)
        })
    });
    written.unwrap_or_else(|(kind, detail)| raise(kind, Some(Location::caller()), detail));
}
