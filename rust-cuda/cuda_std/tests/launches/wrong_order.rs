use cuda_std::emu::{Buffer, Emulator};
use cuda_std::{launch::LaunchConfig, prelude::*};

/// Scales `n` values.
#[kernel]
pub unsafe fn scale(x: *const f32, factor: f32, n: u32, out: *mut f32) {
    let i = thread::index_1d();
    if i < n {
        unsafe { *out.add(i as usize) = factor * *x.add(i as usize) };
    }
}

fn main() {
    let (x, out) = (Buffer::from_slice(&[1.0f32, 2.0]), Buffer::<f32>::poisoned(2));
    let _ = scale::launch(&Emulator::new(), LaunchConfig::new(1, 32), x.ptr(), 2u32, 3.0f32, out.ptr());
}
