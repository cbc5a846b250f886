use cuda_std::prelude::*;

/// Has a result.
#[kernel]
pub unsafe fn returns(n: u32) -> u32 {
    n
}

/// Has generics.
#[kernel]
pub unsafe fn generic<T>(x: *const T) {
    let _ = x;
}

/// Is safe.
#[kernel]
pub fn safe(n: u32) {
    let _ = n;
}

fn main() {}
