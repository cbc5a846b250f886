//! Kernels of clusters with a mistake each, what the emulator says about it, and that it says nothing about right ones.

mod expect;

use cuda_std::emu::{Buffer, Emulator, FaultKind};
use cuda_std::launch::LaunchConfig;
use cuda_std::prelude::*;
use cuda_std::shared::static_shared;
use expect::expect;

const PAIR: LaunchConfig = LaunchConfig::new(2, 64).shared(1024).cluster(2);

/// Block 0 sets a word that block 1 loads behind a barrier that makes nothing visible.
#[kernel]
pub unsafe fn reads_behind_a_relaxed_barrier() {
    let word = shared::dynamic::<u32>(0, 1);
    let first = thread::index_in_block() == 0;
    if cluster::rank() == 0 && first {
        word.store(0, 1);
    }
    cluster::arrive_relaxed();
    cluster::wait();
    if cluster::rank() == 1 && first {
        let _ = word.in_block(0).load(0);
    }
    cluster::sync();
}

/// Block 0 sets a word before and reads it after the barrier, behind which block 1 sets it.
#[kernel]
pub unsafe fn overwrites_what_is_read() {
    let word = shared::dynamic::<u32>(0, 1);
    let first = thread::index_in_block() == 0;
    if cluster::rank() == 0 && first {
        word.store(0, 1);
    }
    cluster::sync();
    if first {
        match cluster::rank() {
            0 => assert!(word.load(0) < 3),
            _ => word.in_block(0).store(0, 2),
        }
    }
    cluster::sync();
}

/// Both blocks set the same word of block 0.
#[kernel]
pub unsafe fn sets_a_word_twice() {
    cluster::sync();
    if thread::index_in_block() == 0 {
        shared::dynamic::<u32>(0, 1).in_block(0).store(0, cluster::rank());
    }
    cluster::sync();
}

/// A remote load that the owner's store may not have come before.
#[kernel]
pub unsafe fn reads_what_is_not_written() {
    let word = shared::dynamic::<u32>(0, 2);
    let first = thread::index_in_block() == 0;
    if cluster::rank() == 0 && first {
        word.store(0, 1);
    }
    cluster::sync();
    if cluster::rank() == 1 && first {
        let _ = word.in_block(0).load(1);
    }
    cluster::sync();
}

#[test]
fn races_between_blocks_are_reported() {
    let race = FaultKind::SharedRace;
    expect(race, "no barrier between", |e| overwrites_what_is_read::launch(e, PAIR));
    expect(race, "of the cluster wrote", |e| sets_a_word_twice::launch(e, PAIR));
    expect(race, "of the cluster wrote", |e| {
        reads_behind_a_relaxed_barrier::launch(e, PAIR)
    });
    expect(FaultKind::SharedUninitialised, "in block 0 of the cluster", |e| {
        reads_what_is_not_written::launch(e, PAIR)
    });
}

/// Stores before anything has shown that the other block runs.
#[kernel]
pub unsafe fn stores_too_early() {
    let other = 1 - cluster::rank();
    shared::dynamic::<u32>(0, 64)
        .in_block(other)
        .store(thread::index_in_block(), 7);
    cluster::sync();
}

/// Stores with no barrier before the other block ends.
#[kernel]
pub unsafe fn stores_too_late() {
    cluster::sync();
    if cluster::rank() == 1 {
        shared::dynamic::<u32>(0, 64)
            .in_block(0)
            .store(thread::index_in_block(), 7);
    }
}

/// Names a block that there is not.
#[kernel]
pub unsafe fn names_a_third_block() {
    cluster::sync();
    shared::dynamic::<u32>(0, 64).in_block(2).store(0, 7);
}

/// Stores outside the handle or, with `beyond`, outside the block's memory.
#[kernel]
pub unsafe fn stores_outside(beyond: u32) {
    cluster::sync();
    let (len, at) = if beyond == 0 { (64, 64) } else { (1000, 999) };
    shared::dynamic::<u32>(0, len).in_block(1).store(at, 7);
    cluster::sync();
}

#[test]
fn accesses_to_blocks_that_may_not_run_and_outside_their_memory_are_reported() {
    let remote = FaultKind::RemoteAccess;
    expect(remote, "no cluster barrier has shown to run", |e| {
        stores_too_early::launch(e, PAIR)
    });
    expect(remote, "block 0 of the cluster", |e| stores_too_late::launch(e, PAIR));
    expect(remote, "block 2 of a cluster of 2", |e| {
        names_a_third_block::launch(e, PAIR)
    });
    expect(FaultKind::SharedBounds, "of a handle of 64", |e| {
        stores_outside::launch(e, PAIR, 0)
    });
    expect(FaultKind::SharedBounds, "in block 1 of the cluster", |e| {
        stores_outside::launch(e, PAIR, 1)
    });
}

/// Block 1 ends without coming to the barrier.
#[kernel]
pub unsafe fn leaves_before_the_barrier() {
    if cluster::rank() == 0 {
        cluster::sync();
    }
}

/// Half of each warp comes.
#[kernel]
pub unsafe fn comes_by_halves() {
    if warp::lane() < 16 {
        cluster::sync();
    }
}

/// Waits, or arrives a second time.
#[kernel]
pub unsafe fn arrives_and_waits_out_of_turn(twice: u32) {
    if twice != 0 {
        cluster::arrive();
        cluster::arrive();
    }
    cluster::wait();
}

/// Block 1 waits at the block's barrier only.
#[kernel]
pub unsafe fn meets_in_part() {
    match cluster::rank() {
        0 => cluster::sync(),
        _ if warp::index() == 0 => thread::sync_threads(),
        _ => cluster::sync(),
    }
}

/// Arrives for others, and ends without waiting.
#[kernel]
pub unsafe fn arrives_and_leaves() {
    cluster::arrive();
    if cluster::rank() == 0 {
        cluster::wait();
    }
}

#[test]
fn threads_that_part_at_a_cluster_barrier_are_reported() {
    let divergence = FaultKind::Divergence;
    expect(divergence, "barrier", |e| leaves_before_the_barrier::launch(e, PAIR));
    expect(divergence, "needs all 32 lanes", |e| comes_by_halves::launch(e, PAIR));
    expect(divergence, "cluster::wait", |e| meets_in_part::launch(e, PAIR));
    expect(FaultKind::Misuse, "without having arrived", |e| {
        arrives_and_waits_out_of_turn::launch(e, PAIR, 0)
    });
    expect(FaultKind::Misuse, "again without having waited", |e| {
        arrives_and_waits_out_of_turn::launch(e, PAIR, 1)
    });
    Emulator::under_orders(4, |e| arrives_and_leaves::launch(e, PAIR)).expect("nobody comes again");
}

/// Block 1 stores a word in block 0 and signals; block 0 waits at the scope that `scope` says (1: the cluster's).
#[kernel]
pub unsafe fn signals(scope: u32) {
    let (word, full) = (
        shared::dynamic::<u32>(0, 1),
        mbarrier::Barrier::at(shared::dynamic::<u64>(8, 1), 0),
    );
    let first = thread::index_in_block() == 0;
    if first {
        full.init(1);
        mbarrier::fence_init();
    }
    cluster::sync();
    if cluster::rank() == 1 && first {
        word.in_block(0).store(0, 7);
        full.in_block(0).arrive();
    }
    if cluster::rank() == 0 {
        if scope == 1 {
            full.wait_cluster(0)
        } else {
            full.wait(0)
        }
        assert_eq!(word.load(0), 7);
    }
    cluster::sync();
}

/// What [`sends`] does wrong.
mod wrong {
    pub const NOTHING: u32 = 0;
    pub const BARRIER: u32 = 1;
    pub const BLOCK: u32 = 2;
    pub const EARLY: u32 = 3;
    pub const LESS: u32 = 4;
    pub const FENCE: u32 = 5;
}

/// Block 1 sends a word to block 0, whose barrier counts its bytes.
#[kernel]
pub unsafe fn sends(mistake: u32) {
    let word = shared::dynamic::<u32>(0, 1);
    let [full, none] = [0, 1].map(|n| mbarrier::Barrier::at(shared::dynamic::<u64>(8, 2), n));
    let first = thread::index_in_block() == 0;
    if first {
        full.init(1);
        if mistake != wrong::FENCE {
            mbarrier::fence_init();
        }
        full.arrive_expect(4);
    }
    cluster::arrive_relaxed();
    cluster::wait();
    if cluster::rank() == 1 && first {
        let signal = match mistake {
            wrong::BARRIER => none.in_block(0),
            wrong::BLOCK => full.in_block(1),
            _ => full.in_block(0),
        };
        if mistake != wrong::LESS {
            word.in_block(0).store_async(0, 7, signal);
        }
    }
    if cluster::rank() == 0 {
        if mistake != wrong::EARLY {
            full.wait_cluster(0);
        }
        assert_eq!(word.load(0), 7);
    }
}

#[test]
fn signals_across_blocks_that_do_not_hold_are_reported() {
    Emulator::under_orders(4, |e| signals::launch(e, PAIR, 1)).expect("a wait at the cluster's scope");
    expect(FaultKind::SharedRace, "no barrier between", |e| {
        signals::launch(e, PAIR, 0)
    });
    Emulator::under_orders(4, |e| sends::launch(e, PAIR, wrong::NOTHING)).expect("a right one");
    for (mistake, kind, words) in [
        (wrong::BARRIER, FaultKind::Misuse, "no mbarrier was initialised"),
        (wrong::BLOCK, FaultKind::Misuse, "signals a barrier of block 1"),
        (wrong::EARLY, FaultKind::SharedUninitialised, "offset 0"),
        (wrong::LESS, FaultKind::Deadlock, "polls"),
        (wrong::FENCE, FaultKind::SharedRace, "no barrier between"),
    ] {
        expect(kind, words, |e| sends::launch(e, PAIR, mistake));
    }
}

/// Block 0 waits for a word in global memory that block 1 sets.
#[kernel]
pub unsafe fn waits_for_the_other(flag: *mut u32) {
    if thread::index_in_block() == 0 {
        // SAFETY: the launch passes a word.
        unsafe {
            match thread::block_idx_x() {
                0 => while atomic::gpu::load_acquire(flag) == 0 {},
                _ => atomic::gpu::store_release(flag, 1),
            }
        }
    }
}

/// Notes the order in which threads run: each takes a number and writes its block there.
#[kernel]
pub unsafe fn notes_the_order(counter: *mut u32, blocks: *mut u32) {
    // SAFETY: the launch passes a counter, and a word for each thread.
    unsafe {
        let at = atomic::gpu::fetch_add(counter, 1);
        *blocks.add(at as usize) = thread::block_idx_x();
    }
}

#[test]
fn blocks_of_a_cluster_run_at_once_in_an_order_that_the_seed_decides() {
    let flag = || Buffer::from_slice(&[0u32]);
    Emulator::under_orders(3, |e| waits_for_the_other::launch(e, PAIR, flag().ptr())).expect("both run");
    let apart = Emulator::new();
    let fault = waits_for_the_other::launch(&apart, PAIR.cluster(1), flag().ptr()).expect_err("one after the other");
    assert_eq!(fault.kind, FaultKind::Deadlock);
    let order = |seed| {
        let (counter, blocks) = (flag(), Buffer::<u32>::poisoned(256));
        let config = LaunchConfig::new(4, 64).cluster(4);
        notes_the_order::launch(&Emulator::with_seed(seed), config, counter.ptr(), blocks.ptr()).expect("it runs");
        blocks.to_vec()
    };
    let changes = |order: &[u32]| order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(order(7), order(7));
    assert_ne!(order(7), order(8));
    assert!(
        (1..=4).map(order).all(|order| changes(&order) > 3),
        "blocks are interleaved"
    );
}

/// Static arrays first used in another order in each block, and stored to from the other.
#[kernel]
pub unsafe fn statics_in_any_order() {
    let i = thread::index_in_block();
    let one = || static_shared!(one: [u32; 64]);
    let two = || static_shared!(two: [u32; 128]);
    if cluster::rank() == 0 {
        let _ = (one(), two());
    } else {
        let _ = (two(), one());
    }
    cluster::sync();
    let other = 1 - cluster::rank();
    one().in_block(other).store(i, i);
    two().in_block(other).store(64 + i, 100 + i);
    cluster::sync();
    assert_eq!((one().load(i), two().load(64 + i)), (i, 100 + i));
}

/// Three-dimensional grids: clusters lie along x.
#[kernel]
pub unsafe fn places_in_a_grid(places: *mut u32) {
    if thread::index_in_block() == 0 {
        let place = cluster::id() << 8 | cluster::rank() << 4 | cluster::size();
        // SAFETY: the launch passes a word for each block.
        unsafe { *places.add(thread::block_index() as usize) = place }
    }
}

#[test]
fn places_and_static_arrays_are_the_same_for_all_blocks() {
    Emulator::under_orders(4, |e| statics_in_any_order::launch(e, PAIR)).expect("one place in all blocks");
    let places = Buffer::<u32>::poisoned(24);
    let config = LaunchConfig::shaped([6, 2, 2], [32, 1, 1]).cluster(3);
    Emulator::under_orders(2, |e| places_in_a_grid::launch(e, config, places.ptr())).expect("it runs");
    let row = [0x003, 0x013, 0x023, 0x103, 0x113, 0x123];
    assert_eq!(places.to_vec(), row.repeat(4));
    expect(FaultKind::Launch, "1 to 16 blocks", |e| {
        places_in_a_grid::launch(e, config.cluster(4), places.ptr())
    });
}
