//! First.
use cuda_std::{
    emu::{Buffer, Emulator},
    launch::LaunchConfig,
    prelude::*,
};

/// Sums.
#[kernel]
pub unsafe fn block_sum(x: *const f32, n: u32, out: *mut f32) {
    let partial = shared::dynamic::<f32>(0, warp::count());
    let i = thread::index_1d();
    let v = if i < n {
        unsafe { *x.add(i as usize) }
    } else {
        0.0
    };
    let s = warp::sum(v);
    if warp::lane() == 0 {
        partial.store(warp::index(), s);
    }
    thread::sync_threads();
    if thread::thread_idx_x() == 0 {
        let mut t = 0.0;
        for w in 0..warp::count() {
            t += partial.load(w);
        }
        unsafe { *out.add(thread::block_idx_x() as usize) = t };
    }
}

#[test]
fn sums() {
    let x = Buffer::from_slice(&[1.0f32; 1000]);
    let out = Buffer::<f32>::poisoned(4);
    for seed in 0..10 {
        let e = Emulator::with_seed(seed);
        block_sum::launch(
            &e,
            LaunchConfig::new(4, 256).shared(32),
            x.ptr(),
            1000,
            out.ptr(),
        )
        .unwrap();
        out.check_written().unwrap();
        assert_eq!(out.as_slice().iter().sum::<f32>(), 1000.0);
    }
    let bad = block_sum::launch(
        &Emulator::new(),
        LaunchConfig::new(4, 256).shared(32),
        x.ptr(),
        10240,
        out.ptr(),
    );
    println!("{}", bad.unwrap_err());
}
