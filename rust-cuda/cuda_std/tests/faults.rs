//! Kernels with a mistake each, and what the emulator says about it.

mod expect;

use cuda_std::emu::{Buffer, Emulator, Fault, FaultKind};
use cuda_std::launch::{LaunchConfig, Launcher, PreparedLaunch};
use cuda_std::prelude::*;
use expect::expect;

const BLOCK: LaunchConfig = LaunchConfig::new(1, 64).shared(1024);

/// Meets at barriers in both branches.
#[kernel]
#[allow(clippy::if_same_then_else)]
pub unsafe fn barrier_in_branches() {
    if thread::thread_idx_x() < 32 {
        thread::sync_threads();
    } else {
        thread::sync_threads();
    }
}

/// Half the block waits in a vote of lanes that wait at the barrier.
#[kernel]
pub unsafe fn barrier_against_vote() {
    if warp::lane() < 16 {
        thread::sync_threads();
    } else {
        warp::any(true);
    }
}

/// Waits at a named barrier for a warp that does not come.
#[kernel]
pub unsafe fn barrier_for_nobody() {
    if warp::index() == 0 {
        barrier::sync(3, 64);
    }
}

/// Uses a barrier that there is not.
#[kernel]
pub unsafe fn barrier_sixteen() {
    barrier::sync(16, 64);
}

#[test]
fn threads_that_part_at_barriers_are_reported() {
    let launch = |e: &Emulator| barrier_in_branches::launch(e, BLOCK);
    let fault = expect(FaultKind::Divergence, "comes to a barrier while thread", launch);
    assert!(fault.site.expect("a place").file().ends_with("faults.rs"));
    expect(FaultKind::Divergence, "wait in a vote", |e| {
        barrier_against_vote::launch(e, BLOCK)
    });
    expect(FaultKind::Deadlock, "threads 0 to 31 wait in a barrier", |e| {
        barrier_for_nobody::launch(e, BLOCK)
    });
    expect(FaultKind::Divergence, "barriers 0 to 15", |e| {
        barrier_sixteen::launch(e, BLOCK)
    });
}

/// Polls a word that nobody sets.
#[kernel]
pub unsafe fn polls_for_ever(flag: *const u32) {
    // SAFETY: the launch passes a word.
    while unsafe { atomic::gpu::load_acquire(flag) } == 0 {}
}

/// Polls for a word that another block sets.
#[kernel]
pub unsafe fn polls_another_block(flag: *mut u32) {
    if thread::block_idx_x() == 1 {
        // SAFETY: the launch passes a word.
        unsafe { atomic::gpu::store_release(flag, 1) };
    }
    // SAFETY: as above.
    while unsafe { atomic::gpu::load_acquire(flag) } == 0 {}
}

/// The last thread sets what all others of the block poll.
#[kernel]
pub unsafe fn polls_its_block(flag: *mut u32) {
    if thread::thread_idx_x() == 63 {
        // SAFETY: the launch passes a word.
        unsafe { atomic::cta::store_release(flag, 1) };
    }
    // SAFETY: as above.
    while unsafe { atomic::cta::load_acquire(flag) } == 0 {}
}

#[test]
fn polling_ends_or_is_reported() {
    let zero = || Buffer::<u32>::zeroed(1);
    expect(FaultKind::Deadlock, "polls", |e| {
        polls_for_ever::launch(e, BLOCK, zero().ptr())
    });
    let two_blocks = LaunchConfig::new(2, 32);
    let natural = polls_another_block::launch(&Emulator::new(), two_blocks, zero().ptr());
    assert_eq!(natural.expect_err("a fault").kind, FaultKind::Deadlock);
    Emulator::under_orders(4, |e| polls_its_block::launch(e, BLOCK, zero().ptr())).expect("it ends");
}

/// Passes a value to thread `i ^ distance` with no barrier (0), a warp's (1) or the block's (2).
#[kernel]
pub unsafe fn exchanges(distance: u32, ordered_by: u32, out: *mut u32) {
    let (i, words) = (thread::thread_idx_x(), shared::dynamic::<u32>(0, 64));
    words.store(i, i);
    match ordered_by {
        0 => {}
        1 => warp::sync(),
        _ => thread::sync_threads(),
    }
    // SAFETY: the launch passes 64 words.
    unsafe { *out.add(i as usize) = words.load(i ^ distance) };
}

/// Reads its neighbour's value, then overwrites its own at once.
#[kernel]
pub unsafe fn overwrites_too_soon() {
    let (i, words) = (thread::thread_idx_x(), shared::dynamic::<u32>(0, 64));
    words.store(i, i);
    thread::sync_threads();
    let neighbour = words.load(i ^ 1);
    words.store(i, neighbour);
}

/// All threads write one word.
#[kernel]
pub unsafe fn writes_one_word() {
    shared::dynamic::<u32>(0, 1).store(0, 7);
}

/// Threads write and read bytes of one word, each its own.
#[kernel]
pub unsafe fn writes_own_bytes() {
    let (i, bytes) = (thread::thread_idx_x(), shared::dynamic::<u8>(0, 64));
    bytes.store(i, i as u8);
    assert_eq!(u32::from(bytes.load(i)), i);
}

#[test]
fn races_in_shared_memory_are_reported_and_ordered_accesses_are_not() {
    let out = Buffer::<u32>::zeroed(64);
    let exchange = |distance, ordered_by| {
        let out = out.ptr();
        move |e: &Emulator| exchanges::launch(e, BLOCK, distance, ordered_by, out)
    };
    for (distance, ordered_by) in [(1, 1), (1, 2), (32, 2), (0, 0)] {
        Emulator::under_orders(5, exchange(distance, ordered_by)).expect("ordered");
        assert_eq!(out.as_slice()[5], 5 ^ distance);
    }
    // In a natural order half of these read what is written later: those are bytes never written.
    for (distance, ordered_by) in [(1, 0), (32, 0), (32, 1)] {
        for seed in 0..5 {
            let kind = exchange(distance, ordered_by)(&Emulator::with_seed(seed))
                .expect_err("a race")
                .kind;
            assert!(
                matches!(kind, FaultKind::SharedRace | FaultKind::SharedUninitialised),
                "{kind:?}"
            );
        }
    }
    expect(FaultKind::SharedRace, "with no barrier between", |e| {
        overwrites_too_soon::launch(e, BLOCK)
    });
    expect(FaultKind::SharedRace, "writes offset 0", |e| {
        writes_one_word::launch(e, BLOCK)
    });
    Emulator::under_orders(5, |e| writes_own_bytes::launch(e, BLOCK)).expect("no race");
}

/// Reads value `index` of `len` at `offset` in shared memory that thread 0 has filled, as so many bytes.
#[kernel]
pub unsafe fn reads_shared(offset: u32, len: u32, index: u32, bytes: u32) {
    let words = shared::dynamic::<u32>(offset, len);
    match bytes {
        4 => core::hint::black_box(words.load(index)),
        _ => core::hint::black_box(words.load_as::<U32x4>(index).0[0]),
    };
}

/// Waits for nothing and reads what an asynchronous copy will bring.
#[kernel]
pub unsafe fn reads_before_the_copy(from: *const u8, wait: u32) {
    let words = shared::dynamic::<u32>(0, 4);
    // SAFETY: the launch passes 16 bytes.
    unsafe { copy::async_16(words.address(), from) };
    copy::commit();
    match wait {
        0 => {}
        1 => copy::wait::<1>(),
        _ => copy::wait::<0>(),
    }
    core::hint::black_box(words.load(3));
}

#[test]
fn accesses_outside_shared_memory_and_to_unwritten_bytes_are_reported() {
    let one = LaunchConfig::new(1, 1).shared(1024);
    let read = |offset, len, index, bytes| move |e: &Emulator| reads_shared::launch(e, one, offset, len, index, bytes);
    expect(
        FaultKind::SharedBounds,
        "values 8 to 9 of a handle of 8",
        read(0, 8, 8, 4),
    );
    expect(
        FaultKind::SharedBounds,
        "values 6 to 10 of a handle of 8",
        read(0, 8, 6, 16),
    );
    expect(
        FaultKind::SharedBounds,
        "4 bytes at offset 1024 of 1024 dynamic",
        read(1024, 8, 0, 4),
    );
    expect(FaultKind::Misaligned, "16 bytes at offset 4", read(0, 8, 1, 16));
    expect(FaultKind::Misaligned, "4 bytes at offset 2", read(2, 8, 0, 4));
    expect(
        FaultKind::SharedUninitialised,
        "reads byte 0 at offset 32",
        read(0, 16, 8, 4),
    );
    let from = Buffer::from_slice(&[1u8; 16]);
    for wait in [0, 1] {
        expect(FaultKind::SharedUninitialised, "offset 12", |e| {
            reads_before_the_copy::launch(e, one, from.ptr(), wait)
        });
    }
    reads_before_the_copy::launch(&Emulator::new(), one, from.ptr(), 2).expect("it waits");
}

/// Reads word `read`, then writes word `write`, counted from `at`.
#[kernel]
pub unsafe fn touches(at: *mut u32, read: i64, write: i64) {
    // SAFETY: none: that is what is tested.
    unsafe {
        let value = core::ptr::read_volatile(at.offset(read as isize));
        core::ptr::write_volatile(at.offset(write as isize), value);
    }
}

/// Reads 16 bytes at a byte offset.
#[kernel]
pub unsafe fn reads_vector(at: *const u8, offset: u32) {
    // SAFETY: none: that is what is tested.
    core::hint::black_box(unsafe { global::load_stream(at.add(offset as usize).cast::<U32x4>()) });
}

#[test]
fn accesses_outside_buffers_are_reported() {
    let one = LaunchConfig::new(1, 1);
    let buffer = Buffer::from_slice(&[5u32; 100]);
    let touch = |read, write| {
        let at = buffer.ptr();
        move |e: &Emulator| touches::launch(e, one, at, read, write)
    };
    touch(99, 0)(&Emulator::new()).expect("inside");
    expect(
        FaultKind::GlobalAccess,
        "0 bytes past the end of a buffer of 400 bytes",
        touch(100, 0),
    );
    expect(
        FaultKind::GlobalAccess,
        "40 bytes past the end of a buffer of 400 bytes",
        touch(0, 110),
    );
    expect(FaultKind::GlobalAccess, "before a buffer of 400 bytes", touch(0, -1024));
    expect(FaultKind::GlobalAccess, "", |e| {
        touches::launch(e, one, DevicePtr::null(), 0, 0)
    });
    expect(FaultKind::Misaligned, "16 bytes at", |e| {
        reads_vector::launch(e, one, buffer.ptr().cast(), 8)
    });
    expect(FaultKind::GlobalAccess, "null", |e| {
        reads_vector::launch(e, one, DevicePtr::null(), 0)
    });
}

#[test]
fn writes_close_before_a_buffer_are_noticed_after_the_launch() {
    let one = LaunchConfig::new(1, 1);
    let buffer = Buffer::from_slice(&[5u32; 100]);
    let fault = touches::launch(&Emulator::new(), one, buffer.ptr(), 0, -2).expect_err("a fault");
    assert!(
        fault.detail.contains("wrote 8 bytes before a buffer of 400 bytes"),
        "{fault}"
    );
}

/// Never waits, and says it does.
#[kernel(pdl)]
pub unsafe fn never_waits() {}

fn hidden_wait() {
    pdl::wait();
}

/// Waits where the attribute does not see it.
#[kernel]
pub unsafe fn waits_undeclared() {
    hidden_wait();
}

/// Waits.
#[kernel]
pub unsafe fn waits() {
    pdl::launch_dependents();
    pdl::wait();
}

#[test]
fn waiting_for_the_launch_before_is_as_declared() {
    expect(FaultKind::DependencyWait, "no thread of the block does", |e| {
        never_waits::launch(e, BLOCK)
    });
    expect(FaultKind::DependencyWait, "#[kernel(pdl)]", |e| {
        waits_undeclared::launch(e, BLOCK)
    });
    waits::launch(&Emulator::new(), BLOCK.pdl(true)).expect("it waits");
    assert!(waits::INFO.pdl && !touches::INFO.pdl);
    expect(FaultKind::Launch, "only a kernel that calls pdl::wait()", |e| {
        barrier_sixteen::launch(e, BLOCK.pdl(true))
    });
    expect(FaultKind::Launch, "1024 threads", |e| {
        waits::launch(e, LaunchConfig::new(1, 2048))
    });
}

/// Overflows in thread 5.
#[kernel]
pub unsafe fn overflows(bits: u32) {
    let shift = if thread::thread_idx_x() == 5 { bits } else { 0 };
    core::hint::black_box(1u32.checked_shl(shift).expect("a shift below 32"));
    thread::sync_threads();
}

/// Lane 3 has gone when its value is asked for.
#[kernel]
pub unsafe fn reads_a_lane_that_left() {
    if warp::lane() != 3 {
        core::hint::black_box(warp::shuffle(1u32, 3));
    }
}

/// Lane 9 votes for others.
#[kernel]
pub unsafe fn votes_outside_its_mask() {
    if warp::lane() == 9 {
        warp::warp_vote_any(0xff, true);
    }
}

/// Half a warp multiplies matrices.
#[kernel]
pub unsafe fn multiplies_in_half_a_warp() {
    if warp::lane() < 16 {
        core::hint::black_box(mma::m16n8k32_s8([0; 4], [0; 2], [0; 4]));
    }
}

/// Arrives twice in a phase of an mbarrier for one arrival.
#[kernel]
pub unsafe fn arrives_too_often() {
    let barrier = mbarrier::Barrier::at(shared::dynamic::<u64>(0, 1), 0);
    barrier.init(1);
    barrier.arrive_expect(64);
    barrier.arrive();
}

/// Arrives at an mbarrier that nobody has set up.
#[kernel]
pub unsafe fn arrives_nowhere() {
    mbarrier::Barrier::at(shared::dynamic::<u64>(0, 1), 0).arrive();
}

#[test]
fn misuse_is_reported() {
    expect(FaultKind::Panic, "a shift below 32", |e| {
        overflows::launch(e, BLOCK, 40)
    });
    overflows::launch(&Emulator::new(), BLOCK, 31).expect("no overflow");
    expect(FaultKind::Misuse, "reads lane 3", |e| {
        reads_a_lane_that_left::launch(e, BLOCK)
    });
    expect(FaultKind::Misuse, "lane 9 calls a vote", |e| {
        votes_outside_its_mask::launch(e, BLOCK)
    });
    let half = LaunchConfig::new(1, 16);
    expect(FaultKind::Divergence, "all 32 lanes", |e| {
        multiplies_in_half_a_warp::launch(e, half)
    });
    expect(FaultKind::Divergence, "all 32 lanes", |e| {
        multiplies_in_half_a_warp::launch(e, BLOCK)
    });
    let one = LaunchConfig::new(1, 1).shared(8);
    expect(FaultKind::Misuse, "more than 1 arrivals", |e| {
        arrives_too_often::launch(e, one)
    });
    expect(FaultKind::Misuse, "no mbarrier", |e| arrives_nowhere::launch(e, one));
}

/// Sums `n` values: blocks add their sums up, and the last to finish writes the total.
#[kernel]
pub unsafe fn last_block_sums(x: *const u32, n: u32, partial: *mut u32, finished: *mut u32, total: *mut u32) {
    let (i, last) = (thread::index_1d(), shared::static_shared!(last: [u32; 1]));
    // SAFETY: the launch passes `n` values, a word for each block, and two words.
    unsafe {
        let value = if i < n { *x.add(i as usize) } else { 0 };
        let sum = warp::redux_add(warp::FULL, value);
        if warp::lane() == 0 {
            atomic::gpu::fetch_add(partial.add(thread::block_idx_x() as usize), sum);
        }
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            atomic::gpu::fence();
            let before = atomic::gpu::fetch_add_acq_rel(finished, 1);
            last.store(0, u32::from(before + 1 == thread::grid_dim_x()));
        }
        thread::sync_threads();
        if last.load(0) == 1 && thread::thread_idx_x() == 0 {
            let blocks = thread::grid_dim_x() as usize;
            *total = (0..blocks).map(|block| *partial.add(block)).sum();
        }
    }
}

#[test]
fn the_last_block_sees_what_all_have_done() {
    let values: Vec<u32> = (0..1000).collect();
    Emulator::under_orders(8, |e| {
        let (x, partial) = (Buffer::from_slice(&values), Buffer::zeroed(16));
        let (finished, total) = (Buffer::zeroed(1), Buffer::poisoned(1));
        let config = LaunchConfig::new(16, 64);
        last_block_sums::launch(e, config, x.ptr(), 1000, partial.ptr(), finished.ptr(), total.ptr())?;
        assert_eq!(total.to_vec(), [499_500]);
        Ok::<_, Fault>(())
    })
    .expect("no fault");
}

/// Notes the order in which threads run.
#[kernel]
pub unsafe fn notes_order(next: *mut u32, order: *mut u32) {
    // SAFETY: the launch passes a counter and a word for each thread.
    unsafe {
        let at = atomic::gpu::fetch_add(next, 1);
        *order.add(at as usize) = thread::index_1d();
    }
}

#[test]
fn a_seed_decides_the_order_of_everything() {
    let order = |seed| {
        let (next, order) = (Buffer::zeroed(1), Buffer::<u32>::poisoned(256));
        let launch: PreparedLaunch = notes_order::prepare(LaunchConfig::new(4, 64), next.ptr(), order.ptr());
        Emulator::with_seed(seed).launch(&launch).expect("no fault");
        order.to_vec()
    };
    assert_eq!(order(0), (0..256).collect::<Vec<_>>());
    assert_eq!(order(3), order(3));
    assert_ne!(order(3), order(4));
    let mut sorted = order(3);
    sorted.sort_unstable();
    assert_eq!(sorted, order(0));
}
