//! Clusters of one block.

use super::block::block_barrier;
use bytemuck::Pod;

pub(crate) fn cluster_rank() -> u32 {
    0
}

pub(crate) fn cluster_size() -> u32 {
    1
}

#[track_caller]
pub(crate) fn cluster_arrive() {}

#[track_caller]
pub(crate) fn cluster_wait() {
    block_barrier(0, None, false);
}

#[track_caller]
pub(crate) fn cluster_map(address: u32, _rank: u32) -> u32 {
    address
}

#[track_caller]
pub(crate) fn remote_read<T: Pod>(address: u32) -> T {
    super::shared_read(address)
}

#[track_caller]
pub(crate) fn remote_write<T: Pod>(address: u32, value: T) {
    super::shared_write(address, value)
}

#[track_caller]
pub(crate) fn remote_write_async<T: Pod>(address: u32, value: T, barrier: u32) {
    super::shared_write(address, value);
    super::mbarrier_arrive(barrier, 0);
}

#[track_caller]
pub(crate) fn mbarrier_arrive_remote(address: u32) {
    super::mbarrier_arrive(address, 0)
}

#[track_caller]
pub(crate) fn mbarrier_test_cluster(address: u32, parity: u32) -> bool {
    super::mbarrier_test(address, parity)
}
